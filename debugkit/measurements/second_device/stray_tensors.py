"""Finds tensors that are on another device than the model: where each was created and which operation fails."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from debugkit.finding import SourceLine
from debugkit.frames import caller_of_operation, is_own, is_users, user_line
from debugkit.measurements.autograd_graph.measure import is_custom, walk
from debugkit.measurements.second_device import StrayTensor
from debugkit.structure import map_tensors, tensors_in

# The error messages of CUDA, FakeTensor and the meta device for the same mistake.
_MISMATCH = re.compile(r"same device|two devices|mismatching .*device|expected .*device|is on cpu", re.IGNORECASE)
_TO_NUMPY = frozenset({"numpy", "__array__"})


@dataclass(frozen=True)
class _Origin:
    created: SourceLine | None = None
    attribute: str | None = None


class StrayTensorMode(TorchFunctionMode):
    """Runs every operation. One that fails because of a CPU tensor is recorded and runs again with the tensor moved.

    `call(func, args, kwargs)` runs an operation. A simulated device returns recorded results for some of them.
    """

    def __init__(self, device: torch.device, call: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self.device = device
        self.strays: list[StrayTensor] = []
        self.phase: Literal["forward", "backward"] = "forward"
        self.placed: SourceLine | None = None
        self.running: list[str] = []  # dotted paths of the modules whose forward is on the stack
        self._origins = WeakTensorKeyDictionary()
        self._call = call or (lambda func, args, kwargs: func(*args, **kwargs))

    def set_attribute(self, tensor: Tensor, attribute: str) -> None:
        """Record that a module holds `tensor` under this dotted path."""
        self._origins[tensor] = _Origin(attribute=attribute)

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors = [tensor for _, tensor in tensors_in((args, kwargs))]
        name = getattr(func, "__name__", "an operation")
        if self.placed is None and named_device(name, args, kwargs) is not None:
            self.placed = own_line()
        if name in _TO_NUMPY and tensors and self._is_on_device(tensors[0]):
            self._add_stray(name, tensors[0], "Only a CPU tensor can become a NumPy array: call .cpu() first.")
        try:
            output = self._call(func, args, kwargs)
        except RuntimeError as error:
            left_behind = [t for t in tensors if t.ndim and not self._is_on_device(t)]
            if not (_MISMATCH.search(str(error)) and left_behind and any(map(self._is_on_device, tensors))):
                raise
            for tensor in left_behind:
                self._add_stray(name, tensor, str(error).split(" (when")[0].splitlines()[0])
            output = self._call(func, *self._moved((args, kwargs)))
        self._record_origins(tensors, output)
        return output

    def follow_into_backward(self, losses: Sequence[Tensor]) -> None:
        """Stay active inside the backward of custom Functions, where the engine disables function modes.

        If such a backward raises, the engine itself restores the earlier modes.
        """

        def enter(_gradients: Any) -> None:
            self.__enter__()  # type: ignore[no-untyped-call]

        def leave(_made: Any, _given: Any) -> None:
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]

        for node in walk(losses).nodes:
            if is_custom(node):
                node.register_prehook(enter)
                node.register_hook(leave)

    def _is_on_device(self, tensor: Tensor) -> bool:
        return tensor.device.type == self.device.type

    def _moved(self, arguments: Any) -> Any:
        return map_tensors(arguments, lambda _, t: t.to(self.device) if t.ndim and not self._is_on_device(t) else t)

    def _record_origins(self, inputs: list[Tensor], output: Any) -> None:
        made = [t for _, t in tensors_in(output) if not self._is_on_device(t) and t not in self._origins]
        if not made:
            return
        known = [self._origins[t] for t in inputs if t in self._origins]
        brought_back = any(self._is_on_device(t) for t in inputs)
        # A tensor computed from a stray tensor is the same stray. The result of `.cpu()` or of a factory is a new one.
        unknown = any(not self._is_on_device(t) for t in inputs) and not known
        if unknown and not brought_back:
            return
        origin = known[0] if known and not brought_back else _Origin(created=user_line())
        for tensor in made:
            self._origins[tensor] = origin

    def _add_stray(self, operation: str, tensor: Tensor, message: str) -> None:
        origin = self._origins[tensor] if tensor in self._origins else _Origin()
        found = StrayTensor(
            phase=self.phase,
            operation=operation,
            used=user_line(),
            module=self.running[-1] if self.running else None,
            created=origin.created,
            attribute=origin.attribute,
            variable=None if origin.created or origin.attribute else _name_on_the_stack(tensor),
            shape=tuple(tensor.shape),
            dtype=str(tensor.dtype).removeprefix("torch."),
            message=message,
            trains=isinstance(tensor, nn.Parameter),
        )
        if not any(_same_cause(found, known) for known in self.strays):
            self.strays.append(found)


def named_device(name: str, args: Any, kwargs: Any) -> torch.device | None:
    """The device on which an operation puts its result, where the program says so: `device=`, `.to(device)`, `.cuda()`.

    None also for a literal `"cpu"`. A variable that is the CPU is an accelerator on a machine that has one.
    """
    target = torch.device("cuda") if name == "cuda" else kwargs.get("device")
    if target is None and name == "to":
        target = next((value for value in args[1:2] if isinstance(value, torch.device | str | Tensor)), None)
    if target is None:
        return None
    device = target.device if isinstance(target, Tensor) else torch.device(target)
    if not _is_named_by_the_program(kwargs.get("device", target)):
        return None
    line = own_line()
    literal = device.type == "cpu" and line is not None and "cpu" in linecache.getline(line.file, line.line).lower()
    return None if literal or line is None else device


def _is_named_by_the_program(target: Any) -> bool:
    """Whether the program calls the operation itself, or passes the device to the function of torch that calls it.

    Otherwise torch chooses it: `nn.TransformerEncoder` makes a mask on the device of the mask that it was given.
    """
    called = frame = caller_of_operation(sys._getframe(1))
    while frame is not None and not is_users(frame.f_code.co_filename):
        called, frame = frame, frame.f_back
    if called is None or called is frame:
        return True
    code = called.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    local = called.f_locals
    given = [*map(local.get, names), *local.get("args", ()), *local.get("kwargs", {}).values()]
    return any(value is target or (isinstance(value, torch.device | str) and value == target) for value in given)


def own_line() -> SourceLine | None:
    """The current line of the program, None inside an installed package."""
    line = user_line()
    return line if line is not None and is_own(line.file) else None


def _same_cause(a: StrayTensor, b: StrayTensor) -> bool:
    if a.created or a.attribute or a.variable:
        return (a.created, a.attribute, a.variable, a.dtype) == (b.created, b.attribute, b.variable, b.dtype)
    return replace(a, module=None) == replace(b, module=None)


def _name_on_the_stack(tensor: Tensor) -> str | None:
    """The variable in the user's frames that holds this tensor object: a global, a closure's cell, an argument."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            for names in (frame.f_globals, frame.f_locals):
                for name, value in list(names.items()):
                    if value is tensor:
                        return name
        frame = frame.f_back
    return None
