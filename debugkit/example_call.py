"""One training call of a model, kept from a running script, so that the experiments of check() can repeat it later."""

from __future__ import annotations

import inspect
from collections import UserDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from debugkit._torch_private import in_transform, is_compiled
from debugkit.declare import Declare
from debugkit.finding import Finding
from debugkit.interventions.batch_roles import labels
from debugkit.setup import TrainingSetup
from debugkit.step_replay.calls import ModuleCall
from debugkit.structure import batch_size, clone_tensors, tensors_in

_MOST_CALLS = 16
"""Calls that are looked at. If none of them can be repeated, later ones cannot either."""
_MOST_BYTES = 1 << 28
_REPEATABLE = (Tensor, bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


@dataclass(frozen=True, eq=False)
class ExampleCall:
    """A call in training mode with at least two samples. `batch` holds copies of its arguments by their names."""

    model: nn.Module
    path: str
    """The prefix of the model's paths in findings."""
    batch: dict[str, Any]
    signature: inspect.Signature
    loss: str | None
    """The path of the loss in the output of the model; None if the model does not compute it."""

    def setup(self, declare: Declare) -> TrainingSetup:
        """The setup whose batch is this call. If the model does not compute the loss, `knows_loss` is False."""
        return TrainingSetup(self.model, self.batch, self._loss_of, declare=declare, knows_loss=self.loss is not None)

    def placed(self, finding: Finding) -> Finding:
        """The finding with its paths as the run names them."""
        if not self.path:
            return finding
        here = finding.location
        module = None if here.module is None else self._from_the_run(here.module)
        parameter = None if here.parameter is None else self._from_the_run(here.parameter)
        return replace(
            finding,
            location=replace(here, module=module, parameter=parameter),
            affects=tuple(map(self._from_the_run, finding.affects)),
        )

    def _from_the_run(self, path: str) -> str:
        return f"{self.path}.{path}".rstrip(".")

    def _loss_of(self, model: nn.Module, batch: dict[str, Any]) -> Tensor:
        bound = self.signature.bind_partial()
        bound.arguments.update({name: batch[name] for name in self.signature.parameters if name in batch})
        more = {name: value for name, value in batch.items() if name not in self.signature.parameters}
        output = model(*bound.args, **bound.kwargs, **more)
        return torch.zeros(()) if self.loss is None else dict(tensors_in(output))[self.loss].mean()


class ExampleCalls:
    """Keeps the first call of a watched model that can be repeated."""

    def __init__(self) -> None:
        self.found: ExampleCall | None = None
        self.why_not = "The script called no model in training mode with two samples or more."
        self._seen = 0

    @property
    def searching(self) -> bool:
        """Whether more calls are looked at."""
        return self.found is None and self._seen < _MOST_CALLS

    def ended(self, call: ModuleCall, output: Any) -> None:
        """A call of a watched model, as a whole, has ended."""
        if not self.searching or not call.grad_enabled or not call.module.training:
            return
        self._seen += 1
        try:
            why_not = self._keep(call, output)
        except Exception as error:
            why_not = f"Its arguments could not be copied ({type(error).__name__})."
        if why_not is not None:
            self.why_not = why_not

    def _keep(self, call: ModuleCall, output: Any) -> str | None:
        """Keep the call, or return the reason why it cannot be repeated."""
        if is_compiled(call.module):
            return "The model is compiled, so its modules cannot be observed."
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return "Several processes train the model, and a call after the training would wait for the others."
        if in_transform() or call.changed_since():
            return "The arguments of the model's call were changed by it, or are those of a transform."
        signature = inspect.signature(call.module.forward)
        batch = _by_name(signature, call.args, call.kwargs)
        if (other := next(_not_repeatable(batch.values()), None)) is not None:
            return f"The model was called with an argument of type {type(other).__name__}, which cannot be copied."
        if (batch_size(batch) or 0) < 2:
            return "The model was called with fewer than two samples."
        if sum(tensor.nbytes for _, tensor in tensors_in(batch)) > _MOST_BYTES:
            return f"The arguments of the model's call are larger than {_MOST_BYTES >> 20} MiB."
        batch = clone_tensors(batch)
        found = ExampleCall(call.module, call.path, batch, _without_variables(signature), None)
        loss = _loss_in(output, found.setup(Declare()))
        self.found = ExampleCall(found.model, found.path, batch, found.signature, loss)
        return None


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


def _not_repeatable(values: Iterable[Any]) -> Any:
    """Objects inside the arguments that a second call could find changed."""
    for value in values:
        if isinstance(value, _REPEATABLE):
            continue
        if isinstance(value, UserDict | Mapping):
            yield from _not_repeatable(value.values())
        elif type(value) in (list, tuple) or (isinstance(value, tuple) and hasattr(value, "_fields")):
            yield from _not_repeatable(value)
        else:
            yield value


def _loss_in(output: Any, setup: TrainingSetup) -> str | None:
    """The path of the loss: the scalar named `loss`, or the only scalar of a model that was given labels."""
    scalars = [path for path, tensor in tensors_in(output) if tensor.numel() == 1 and tensor.requires_grad]
    named = [path for path in scalars if path.rpartition(".")[2] == "loss"]
    if len(named) == 1:
        return named[0]
    return scalars[0] if len(scalars) == 1 and labels(setup) is not None else None
