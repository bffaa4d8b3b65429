"""One training call of a model, kept from a running script, so that the experiments of check() can repeat it later."""

from __future__ import annotations

import functools
import inspect
import sys
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from debugkit._torch_private import in_transform, is_compiled
from debugkit.declare import Declare
from debugkit.distributed.wrappers import callable_alone
from debugkit.finding import Finding, renamed
from debugkit.frames import is_users
from debugkit.interventions.batch_roles import labels
from debugkit.interventions.padding import is_zero_or_one, names_a_mask
from debugkit.loader_samples import draws_at_random
from debugkit.recorders.output_gradients import OutputGradients
from debugkit.setup import TrainingSetup
from debugkit.step_replay.calls import ModuleCall
from debugkit.structure import batch_size, clone_tensors, tensors_in

_MOST_CALLS = 16
"""Calls that are looked at. If none of them can be repeated, or has padding, later ones are not likely to either."""
_MOST_BYTES = 1 << 28
_REPEATABLE = (Tensor, bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_CLASS_LOSSES = ("cross_entropy", "nll_loss")
_LOOKS = ("__get__", "__len__", "dim", "numel", "size")
"""Functions that only read the shape, the dtype or the device of a tensor."""
_LABELS = "labels"
_IGNORED = -100


@dataclass(frozen=True, eq=False)
class ExampleCall:
    """A call in training mode with at least two samples. `batch` holds copies of its arguments by their names."""

    model: nn.Module
    path: str
    """The prefix of the model's paths in findings."""
    batch: dict[str, Any]
    """If the script computed a loss of the tokens outside the model, its targets are under `labels`."""
    signature: inspect.Signature
    loss: Callable[[Any, Mapping[str, Any]], Tensor] | None
    """The loss of an output and a batch; None if it is not known."""
    has_samples_first: bool
    """Whether the first dimension has the size of a data loader's batches. Otherwise it may be that of time."""
    drawn_at_random: bool = False
    """Whether that data loader draws the samples in random order."""
    beside_the_call: frozenset[str] = frozenset()
    """The entries of the batch that the model does not receive."""
    used_outside: frozenset[str] = frozenset()
    """The paths of the arguments that the script used outside the model too, between this call and the next one."""
    gradients: OutputGradients = field(default_factory=OutputGradients)
    """Those of its output, from the script's backward passes."""

    def setup(self, declare: Declare) -> TrainingSetup:
        """The setup whose batch is this call."""
        return TrainingSetup(
            self.model,
            self.batch,
            self._loss_of,
            declare=declare,
            knows_loss=self.loss is not None,
            used_outside=self.used_outside,
            knows_samples=self.has_samples_first,
            drawn_at_random=self.drawn_at_random,
            output_gradients=self.gradients.norms,
        )

    def placed(self, finding: Finding) -> Finding:
        """The finding with its paths as the run names them."""
        if not self.path:
            return finding
        return renamed(finding, lambda path: f"{self.path}.{path}".rstrip("."))

    def _loss_of(self, model: nn.Module, batch: dict[str, Any]) -> Tensor:
        bound = self.signature.bind_partial()
        taken = {name: value for name, value in batch.items() if name in self.signature.parameters}
        bound.arguments.update(taken)
        more = batch.keys() - taken.keys() - self.beside_the_call
        output = model(*bound.args, **bound.kwargs, **{name: batch[name] for name in more})
        return torch.zeros(()) if self.loss is None else self.loss(output, batch)


class ExampleCalls:
    """Keeps the first call of a watched model that can be repeated, and how the script computed its loss.

    If its mask says that nothing is padded, as in a batch of equal lengths, a later call with padding is better.
    Paths in findings begin with `path`, or with that of the call.
    """

    def __init__(self, path: str = "") -> None:
        self._path = path
        self.found: ExampleCall | None = None
        self.why_not = "The script called no model in training mode with two samples or more."
        self._seen = 0
        self._lacks_padding = False
        self._outputs: dict[str, Tensor] = {}
        """Those of the call that was found, until its loss is known or the next call begins."""
        self._given: dict[str, Tensor] = {}
        """Its arguments that the script has not used since, until the next call ends."""

    @property
    def searching(self) -> bool:
        """Whether another call, or what the script does with the one that was found, is waited for."""
        wanted = self.found is None or self._lacks_padding
        return bool(self._outputs or self._given) or (wanted and self._seen < _MOST_CALLS)

    def ended(self, call: ModuleCall, output: Any) -> None:
        """A call of a watched model, as a whole, has ended."""
        self._outputs.clear()
        self._given.clear()
        if not self.searching or not call.grad_enabled or not call.module.training:
            return
        self._seen += 1
        try:
            why_not = self._keep(call, output)
        except Exception as error:
            why_not = f"The arguments of the model's call could not be copied ({type(error).__name__})."
        if why_not is not None:
            self.why_not = why_not

    def operation(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """The script called a function of torch, outside the model, after the call that was found."""
        if self._given and self.found is not None and name not in _LOOKS:
            self._note_use(args, kwargs)
        if name not in _CLASS_LOSSES or not self._outputs or self.found is None:
            return
        try:
            found = _token_loss(getattr(functional, name), args, kwargs, self._outputs)
        except Exception:  # an unusual call, whose loss stays unknown
            return
        if found is not None:
            loss, targets = found
            batch = {**self.found.batch, _LABELS: targets}
            self.found = replace(self.found, batch=batch, loss=loss, beside_the_call=frozenset({_LABELS}))
            self._outputs.clear()

    def _note_use(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        taken = set(filter(None, (_place(tensor) for _, tensor in tensors_in((args, kwargs)))))
        used = [path for path, tensor in self._given.items() if _place(tensor) in taken]
        if used and self.found is not None:
            self.found = replace(self.found, used_outside=self.found.used_outside | set(used))
            for path in used:
                del self._given[path]

    def _keep(self, call: ModuleCall, output: Any) -> str | None:
        """Keep the call, or return the reason why it cannot be repeated."""
        if is_compiled(call.module):
            return "The model is compiled, so its modules cannot be observed."
        model = callable_alone(call.module)
        if model is None:
            return "Parts of the model are on other ranks, or inside a wrapper, so one rank cannot call it alone."
        if in_transform() or call.changed_since():
            return "The arguments of the model's call were changed by it, or are those of a transform."
        signature = inspect.signature(model.forward)
        batch = _by_name(signature, call.args, call.kwargs)
        if (other := next(_not_repeatable(batch.values()), None)) is not None:
            return f"The model was called with an argument of type {type(other).__name__}, which cannot be copied."
        lacks_padding = _lacks_padding(batch)
        if self.found is not None and lacks_padding is not False:
            return None
        size = batch_size(batch) or 0
        if size < 2:
            return "The model was called with fewer than two samples."
        if sum(tensor.nbytes for _, tensor in tensors_in(batch)) > _MOST_BYTES:
            return f"The arguments of the model's call are larger than {_MOST_BYTES >> 20} MiB."
        path = self._path or call.path
        loaders = _loaders()
        found = ExampleCall(
            model,
            path if model is call.module else f"{path}.module".lstrip("."),
            clone_tensors(batch),
            _without_variables(signature),
            None,
            size in _batch_sizes(loaders),
            any(draws_at_random(loader, size) for loader in loaders),
        )
        has_labels = labels(found.setup(Declare())) is not None
        found = replace(found, loss=_loss_in(output, has_labels))
        if found.loss is None and (other := next(_not_repeatable([output], _caches()), None)) is not None:
            return f"The model returned an object of type {type(other).__name__}, which cannot be compared."
        if found.loss is None and not any(tensor.ndim for _, tensor in tensors_in(output)):
            return "The model returned nothing that can be compared."
        self.found, self._lacks_padding = found, lacks_padding is True
        found.gradients.observe(output)
        if found.loss is None:
            self._given.update((path, tensor.detach()) for path, tensor in tensors_in(batch))
        if found.loss is None and not has_labels and _LABELS not in batch:
            outputs = tensors_in(output)
            self._outputs.update((path, tensor.detach()) for path, tensor in outputs if tensor.ndim == 3)
        return None


def _place(tensor: Tensor) -> int | None:
    """Where its numbers begin: the call holds aliases of its arguments. None for a tensor without an address."""
    try:
        return tensor.data_ptr() or None
    except RuntimeError:  # sparse, or one of a transform
        return None


def _lacks_padding(batch: Mapping[str, Any]) -> bool | None:
    """Whether the masks of a batch mark no padding; None without a mask."""
    masks = [tensor for path, tensor in tensors_in(batch) if names_a_mask(path) and is_zero_or_one(tensor)]
    return all(bool((mask == mask.flatten()[0]).all()) for mask in masks) if masks else None


def _by_name(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        else:
            named[name] = value
    return named


def _without_variables(signature: inspect.Signature) -> inspect.Signature:
    """Without `**kwargs`: its entries are beside the others in the batch."""
    kept = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    return signature.replace(parameters=kept)


def _not_repeatable(values: Iterable[Any], apart_from: tuple[type, ...] = ()) -> Iterator[Any]:
    """Objects inside the arguments that a second call could find changed."""
    for value in values:
        if isinstance(value, (*_REPEATABLE, *apart_from)):
            continue
        if isinstance(value, UserDict | Mapping):
            yield from _not_repeatable(value.values(), apart_from)
        elif type(value) in (list, tuple) or (isinstance(value, tuple) and hasattr(value, "_fields")):
            yield from _not_repeatable(value, apart_from)
        else:
            yield value


def _caches() -> tuple[type, ...]:
    """The class of what a model of transformers returns for its next call: the outputs beside it show all changes."""
    module = sys.modules.get("transformers.cache_utils")
    return () if module is None else (module.Cache,)


def _loaders() -> list[DataLoader[Any]]:
    """The data loaders in the local variables of the script's functions, or of a trainer's."""
    found: list[DataLoader[Any]] = []
    frame = sys._getframe(1).f_back
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            found += [value for value in list(frame.f_locals.values()) if isinstance(value, DataLoader)]
        frame = frame.f_back
    return found


def _batch_sizes(loaders: Iterable[DataLoader[Any]]) -> set[int]:
    return {getattr(loader.batch_sampler, "batch_size", None) or loader.batch_size or 0 for loader in loaders}


def _loss_in(output: Any, has_labels: bool) -> Callable[[Any, Mapping[str, Any]], Tensor] | None:
    """How to read the loss: all that is returned, the scalar named `loss`, or the only one of a model given labels."""
    scalars = [path for path, tensor in tensors_in(output) if tensor.numel() == 1 and tensor.requires_grad]
    named = [path for path in scalars if path.rpartition(".")[2] in ("", "loss")]
    path = named[0] if len(named) == 1 else scalars[0] if len(scalars) == 1 and has_labels else None
    return None if path is None else functools.partial(_scalar_at, path)


def _scalar_at(path: str, output: Any, _batch: Mapping[str, Any]) -> Tensor:
    return dict(tensors_in(output))[path].mean()


def _token_loss(
    function: Callable[..., Tensor], args: tuple[Any, ...], kwargs: Mapping[str, Any], outputs: Mapping[str, Tensor]
) -> tuple[Callable[[Any, Mapping[str, Any]], Tensor], Tensor] | None:
    """The loss of an output (B, L, C), or of all its positions but the last, and its targets (B, L); None for others.

    The loss is recognised by the values that it was given. Ignored targets are -100.
    """
    given = inspect.signature(function).bind(*args, **kwargs).arguments
    scores, targets = given.pop("input"), given.pop("target")
    if scores.ndim < 2 or targets.is_floating_point():
        return None
    rows = scores.detach().movedim(1, -1).reshape(-1, scores.shape[1])
    ignored = given.pop("ignore_index", _IGNORED)
    for path, output in outputs.items():
        size, length, classes = output.shape
        for left_out in (0, 1):
            kept = output[:, : length - left_out]
            if rows.shape != (size * (length - left_out), classes) or not rows.equal(kept.reshape(rows.shape)):
                continue
            aligned = targets.detach().reshape(size, length - left_out)
            aligned = aligned.masked_fill(aligned == ignored, _IGNORED)
            first = aligned.new_full((size, left_out), _IGNORED)
            loss = functools.partial(_loss_of_tokens, function, path, left_out, dict(given))
            return loss, torch.cat([first, aligned], dim=1)
    return None


def _loss_of_tokens(
    function: Callable[..., Tensor],
    path: str,
    left_out: int,
    options: Mapping[str, Any],
    output: Any,
    batch: Mapping[str, Any],
) -> Tensor:
    scores = dict(tensors_in(output))[path]
    kept = scores[:, : scores.shape[1] - left_out].flatten(0, 1)
    return function(kept, batch[_LABELS][:, left_out:].flatten(), ignore_index=_IGNORED, **options).mean()
