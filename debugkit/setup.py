"""The training setup under examination: model, batch, loss, optimizers, loaders and declared facts.

Every measurement receives a `TrainingSetup`. `debugkit.preserve_state.preserved` restores it bit for bit afterwards.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from debugkit.declare import Declare
from debugkit.finding import NotExamined
from debugkit.loader_samples import batches_of
from debugkit.module_paths import plain_path
from debugkit.structure import clone_tensors

LossFn = Callable[[nn.Module, Any], torch.Tensor]


class SetupError(TypeError):
    """An argument of check() or watch() has the wrong type. The message states the expected type."""


@dataclass(frozen=True, eq=False)
class TrainingSetup:
    """A model and everything that is needed to run a training step on it."""

    model: nn.Module
    batch: Any = None
    loss_fn: LossFn | None = None
    optimizers: tuple[torch.optim.Optimizer, ...] = ()
    more_optimizers: bool = False
    """Whether the loop may have others besides these: they were found in a script, not passed in."""
    loaders: Mapping[str, Iterable[Any]] = field(default_factory=dict)
    device: torch.device | None = None
    """The device that the rules about devices use; None for a simulated device."""
    declare: Declare = field(default_factory=Declare)
    knows_loss: bool = True
    """False if only the model's output can be computed; the loss is then a constant."""
    used_outside: frozenset[str] = frozenset()
    """The paths of the batch's entries that the program also used outside the model, as a loss uses its targets."""
    knows_samples: bool = True
    """False if the first dimension of the batch may be the time of one sample, and not the samples."""
    drawn_at_random: bool | None = None
    """Whether a data loader drew the batch's samples in random order; None if `loaders` can say it."""
    output_gradients: Mapping[str, torch.Tensor] | None = None
    """How strongly the program's own loss depended on the output of this batch: (B, L) norms of the gradient by the
    path of the output's tensor. None if no program ran; empty if it took no backward pass."""

    @classmethod
    def of(
        cls,
        model: nn.Module,
        batch: Any = None,
        loss_fn: LossFn | None = None,
        optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
        dataloader: Iterable[Any] | Mapping[str, Iterable[Any]] | None = None,
        device: str | torch.device | None = None,
        declare: Declare | None = None,
    ) -> TrainingSetup:
        """The setup that check()'s arguments describe. Raises SetupError."""
        if not isinstance(model, nn.Module):
            raise SetupError(f"model must be a torch.nn.Module, but is {_kind(model)}.")
        if loss_fn is not None and not callable(loss_fn):
            raise SetupError(f"loss_fn must be a function of (model, batch), but is {_kind(loss_fn)}.")
        if declare is not None and not isinstance(declare, Declare):
            raise SetupError(f"declare must be a debugkit.Declare(...), but is {_kind(declare)}.")
        given: Any = [] if optimizer is None else [optimizer] if hasattr(optimizer, "param_groups") else optimizer
        if not isinstance(given, Iterable):
            raise SetupError(f"optimizer must be an optimizer or a list of them, but is {_kind(optimizer)}.")
        optimizers: tuple[Any, ...] = tuple(
            getattr(wrapper, "optimizer", wrapper) for wrapper in given
        )  # accelerate wraps them
        for each in optimizers:
            if not isinstance(each, torch.optim.Optimizer):
                raise SetupError(f"optimizer must be an optimizer or a list of them, but holds {_kind(each)}.")
        loaders = dataloader if isinstance(dataloader, Mapping) else {} if dataloader is None else {"train": dataloader}
        return cls(
            model=model,
            batch=_first_batch(loaders) if batch is None else batch,
            loss_fn=loss_fn,
            optimizers=optimizers,
            loaders=loaders,
            device=None if device is None else torch.device(device),
            declare=declare or Declare(),
        )

    def fresh_batch(self) -> Any:
        """A copy of the batch: a loss that modifies its input does not change the original. Raises NotExamined."""
        if self.batch is None:
            raise NotExamined("No batch was given: pass batch= or dataloader=.")
        return clone_tensors(self.batch)

    def loss(self, batch: Any = None) -> torch.Tensor:
        """The scalar training loss of `batch` (by default a copy of the setup's batch). Raises NotExamined."""
        loss = (self.loss_fn or hugging_face_loss)(self.model, self.fresh_batch() if batch is None else batch)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            shape = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else _kind(loss)
            raise NotExamined(f"The loss must be a scalar tensor, but is {shape}.")
        return loss

    @functools.cached_property
    def module_paths(self) -> dict[nn.Module, str]:
        """Each module's dotted path, `""` for the root."""
        return {module: plain_path(path) for path, module in self.model.named_modules()}

    @property
    def named_modules(self) -> list[tuple[str, nn.Module]]:
        """Every module once, with its dotted path."""
        return [(path, module) for module, path in self.module_paths.items()]

    @functools.cached_property
    def parameter_paths(self) -> dict[int, str]:
        """`id(parameter)` → its dotted path. A tied parameter has the first of its paths."""
        paths: dict[int, str] = {}
        for path, parameter in self.model.named_parameters(remove_duplicate=False):
            paths.setdefault(id(parameter), plain_path(path))
        return paths


def hugging_face_loss(model: nn.Module, batch: Any) -> torch.Tensor:
    """The default loss, by Hugging Face's convention: `model(**batch).loss`. Raises NotExamined."""
    if not hasattr(batch, "keys"):
        raise NotExamined(
            f"The batch is {_kind(batch)}, so the default loss `model(**batch).loss` cannot be computed: "
            "pass loss_fn=lambda model, batch: …"
        )
    output = model(**batch)
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if loss is None:
        raise NotExamined(
            f"The model returned {_kind(output)} without a loss: pass loss_fn=lambda model, batch: …, "
            "or the labels that make the model compute one."
        )
    return loss  # type: ignore[no-any-return]


def _first_batch(loaders: Mapping[str, Iterable[Any]]) -> Any:
    train = loaders.get("train")
    if train is None or isinstance(train, Iterator):
        return None if train is None else next(train, None)
    try:
        with batches_of(train, most=1) as batches:
            return next(batches, None)
    except NotExamined:  # it cannot be read without side effects
        return next(iter(train), None)


def _kind(value: object) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"
