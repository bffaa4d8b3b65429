"""What is examined: a model, a batch, a loss, optimizers, loaders, and what was declared about them.

`Subject` is handed to every probe and experiment. `debugkit.restore.restored` puts it back bit for bit afterwards.
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
from debugkit.structure import clone_tensors

LossFn = Callable[[nn.Module, Any], torch.Tensor]


class SubjectError(TypeError):
    """What was handed to check() or watch() is not what it takes; the message says what is."""


@dataclass(frozen=True, eq=False)
class Subject:
    """One model with everything needed to run a training step on it."""

    model: nn.Module
    batch: Any = None
    loss_fn: LossFn | None = None
    optimizers: tuple[torch.optim.Optimizer, ...] = ()
    loaders: Mapping[str, Iterable[Any]] = field(default_factory=dict)
    device: torch.device | None = None
    """The device to pretend or to try, for the rules about devices; None for the pretended one."""
    declare: Declare = field(default_factory=Declare)

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
    ) -> Subject:
        """The subject that check()'s arguments describe. Raises SubjectError."""
        if not isinstance(model, nn.Module):
            raise SubjectError(f"model must be a torch.nn.Module, but is {_kind(model)}.")
        if loss_fn is not None and not callable(loss_fn):
            raise SubjectError(f"loss_fn must be a function of (model, batch), but is {_kind(loss_fn)}.")
        if declare is not None and not isinstance(declare, Declare):
            raise SubjectError(f"declare must be a debugkit.Declare(...), but is {_kind(declare)}.")
        given: Any = [] if optimizer is None else [optimizer] if hasattr(optimizer, "param_groups") else optimizer
        if not isinstance(given, Iterable):
            raise SubjectError(f"optimizer must be an optimizer or a list of them, but is {_kind(optimizer)}.")
        optimizers: tuple[Any, ...] = tuple(
            getattr(wrapper, "optimizer", wrapper) for wrapper in given
        )  # accelerate wraps them
        for each in optimizers:
            if not isinstance(each, torch.optim.Optimizer):
                raise SubjectError(f"optimizer must be an optimizer or a list of them, but holds {_kind(each)}.")
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
        """A copy of the batch, so that a loss that pops a key or writes in place does no harm. Raises NotExamined."""
        if self.batch is None:
            raise NotExamined("No batch was given: pass batch= or dataloader=.")
        return clone_tensors(self.batch)

    def loss(self, batch: Any = None) -> torch.Tensor:
        """The scalar training loss of `batch` (a fresh copy of the subject's own by default). Raises NotExamined."""
        loss = (self.loss_fn or hugging_face_loss)(self.model, self.fresh_batch() if batch is None else batch)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            shape = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else _kind(loss)
            raise NotExamined(f"The loss must be a scalar tensor, but is {shape}.")
        return loss

    @functools.cached_property
    def module_paths(self) -> dict[nn.Module, str]:
        """Each module's dotted path, `""` for the root."""
        return {module: plain_path(path) for path, module in self.model.named_modules()}

    @functools.cached_property
    def parameter_paths(self) -> dict[int, str]:
        """`id(parameter)` → its dotted path; a tied parameter has its first."""
        paths: dict[int, str] = {}
        for path, parameter in self.model.named_parameters(remove_duplicate=False):
            paths.setdefault(id(parameter), plain_path(path))
        return paths


def hugging_face_loss(model: nn.Module, batch: Any) -> torch.Tensor:
    """Hugging Face's convention, the default loss: `model(**batch).loss`. Raises NotExamined."""
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


def plain_path(path: str) -> str:
    """A dotted path without the parts that torch.compile, DDP and FSDP put in."""
    wrappers = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
    return ".".join(part for part in path.split(".") if part not in wrappers)


def _first_batch(loaders: Mapping[str, Iterable[Any]]) -> Any:
    train = loaders.get("train")
    if train is None or isinstance(train, Iterator):
        return None if train is None else next(train, None)
    from debugkit.loader_samples import batches_of  # which itself needs this module

    try:
        with batches_of(train, most=1) as batches:
            return next(batches, None)
    except NotExamined:  # it cannot be read without a trace
        return next(iter(train), None)


def _kind(value: object) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"
