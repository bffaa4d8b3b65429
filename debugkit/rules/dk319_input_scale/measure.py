"""Measures the columns of inputs that reach a first layer in the memory in which they were passed to the model."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from debugkit.finding import NotExamined
from debugkit.held_parameters import held_parameters
from debugkit.probe import Probe
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.rules.dk319_input_scale import RawInput, RawInputs
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in

_LAYERS = (nn.Linear, nn.Conv1d, nn.RNNBase)
_MOST_COLUMNS = 4096
_NOT_ADAPTIVE = (torch.optim.SGD, torch.optim.ASGD)


class RawInputsProbe(Probe[RawInputs]):
    """Hooks the root, the candidate layers, and all layers after them. The numbers are read when the step ends."""

    watch_steps = 1

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._layers = {module: path for path, module in setup.named_modules if isinstance(module, _LAYERS)}
        self._calls = ModuleCalls(setup.named_modules, before=self._enter, after=self._leave)
        self._passed: dict[int, str] = {}
        self._seen: dict[str, _Measured] = {}
        self._waiting: list[_Measured] = []
        self._last: tuple[RawInput, ...] = ()

    def __enter__(self) -> Self:
        self._calls.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.remove()
        self._clear()

    def after_backward(self) -> None:
        with torch.no_grad():
            for measured in self._seen.values():
                measured.read_gradient()

    def end_step(self, _step: int, /) -> None:
        self._last = tuple(measured.read(self._is_adaptive(measured.layer)) for measured in self._seen.values())
        self._clear()

    @property
    def observation(self) -> RawInputs:
        if not self._last:
            raise NotExamined("No input of the model reaches a linear, recurrent or 1-D convolution layer unchanged.")
        return RawInputs(self._last)

    def _clear(self) -> None:
        self._passed, self._seen, self._waiting = {}, {}, []

    def _enter(self, path: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        if module is self.setup.model:
            named = _named(module, args) | dict(kwargs)
            self._passed = {_memory(tensor): name for name, tensor in tensors_in(named) if tensor.is_floating_point()}
        if module in self._layers and path not in self._seen and args and isinstance(args[0], Tensor):
            self._measure(path, module, args[0])

    def _leave(self, _path: str, module: nn.Module, _args: Any, _kwargs: Any, _output: Any) -> None:
        if module is self.setup.model:
            self._passed = {}
        elif next(module.children(), None) is None:
            for measured in self._waiting:
                measured.normalised_after |= "norm" in type(module).__name__.lower()
            self._waiting = [measured for measured in self._waiting if measured.layer is module]

    def _measure(self, path: str, layer: nn.Module, given: Tensor) -> None:
        name = self._passed.get(_memory(given) or -1) if given.grad_fn is None else None
        if name is None or not given.is_floating_point() or given.ndim < 2 or not given.numel():
            return
        columns = given.detach().movedim(-2 if isinstance(layer, nn.Conv1d) else -1, -1)
        columns = columns.reshape(-1, columns.shape[-1])  # (rows, columns)
        if columns.shape[1] > _MOST_COLUMNS:
            return
        with torch.no_grad():
            scales = columns.float().square().mean(0).sqrt()
        self._seen[path] = measured = _Measured(path, name, layer, len(columns), scales)
        self._waiting.append(measured)

    def _is_adaptive(self, layer: nn.Module) -> bool:
        held = {id(parameter) for parameter in layer.parameters()}
        for optimizer in self.setup.optimizers:
            if any(id(parameter) in held for parameter in held_parameters(optimizer)):
                return not isinstance(optimizer, _NOT_ADAPTIVE)
        return True


@dataclass(eq=False)
class _Measured:
    module: str
    input: str
    layer: nn.Module
    rows: int
    scales: Tensor
    """(columns,) on the device."""
    normalised_after: bool = False
    ratio: Tensor | None = None

    def read_gradient(self) -> None:
        """Compare the gradient of the first weight with the weight."""
        weight = next(self.layer.parameters(), None)
        if weight is not None and weight.grad is not None and not weight.grad.is_sparse:
            self.ratio = weight.grad.float().norm() / weight.detach().float().norm().clamp_min(1e-12)

    def read(self, adaptive: bool) -> RawInput:
        used = torch.where(self.scales > 0, self.scales, float("inf"))
        numbers = [self.scales.max(), self.scales.argmax(), used.min(), used.argmin()]
        if self.ratio is not None:
            numbers.append(self.ratio)
        largest, at_largest, smallest, at_smallest, *ratio = torch.stack([n.double() for n in numbers]).tolist()
        return RawInput(
            module=self.module,
            input=self.input,
            rows=self.rows,
            columns=len(self.scales),
            largest=largest,
            largest_column=int(at_largest),
            smallest=smallest,
            smallest_column=int(at_smallest),
            normalised_after=self.normalised_after,
            gradient_ratio=ratio[0] if ratio else 0.0,
            adaptive=adaptive,
        )


def _named(module: nn.Module, args: Any) -> dict[str, Any]:
    """The positional arguments of a module's forward, by the names of its parameters."""
    try:
        names = list(inspect.signature(module.forward).parameters)
    except (TypeError, ValueError):
        names = []
    return {names[index] if index < len(names) else str(index): value for index, value in enumerate(args)}


def _memory(tensor: Tensor) -> int:
    """The address of the tensor's storage, which views and slices share; 0 where there is none."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # a tensor without memory
        return 0
