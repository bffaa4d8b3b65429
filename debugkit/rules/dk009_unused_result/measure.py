"""Look at the instruction after a call: `POP_TOP` drops its result."""

from __future__ import annotations

import dis
import itertools
import sys
from collections.abc import Sequence
from types import CodeType, FrameType
from typing import Any

from torch import Tensor

from debugkit.finding import SourceLine
from debugkit.frames import caller_of_operation, is_own, user_line
from debugkit.recorders.function_calls import FunctionObserver
from debugkit.recorders.function_probe import FunctionProbe
from debugkit.rules.dk009_unused_result import UnusedResult, UnusedResults
from debugkit.setup import TrainingSetup

_TYPES = frozenset({"float", "double", "half", "bfloat16", "long", "int", "bool", "type", "type_as"})
_MOVES = _TYPES | {"to", "cuda", "xpu"}
_DRAWS = frozenset({"bernoulli"})
"""They change the random state."""
_PURE = _MOVES | {name for name in dir(Tensor) if name[0] != "_" and hasattr(Tensor, f"{name}_")} - _DRAWS
_MOST = 64


class UnusedResultsProbe(FunctionProbe[UnusedResults, "_Calls"]):
    """Keeps no tensor. The observation covers all observed steps."""

    watch_steps = 3
    partial = True

    def __init__(self, setup: TrainingSetup) -> None:
        running: list[str] = []
        super().__init__(setup, _Calls(running), running)

    def observed(self) -> UnusedResults:
        lines = (
            UnusedResult(operation, _in_place(operation), at, module, shape, calls)
            for (operation, at), (module, shape, calls) in self.calls.found.items()
        )
        return UnusedResults(tuple(lines))


class _Calls(FunctionObserver):
    functions = _PURE

    def __init__(self, running: list[str]) -> None:
        self.found: dict[tuple[str, SourceLine], tuple[str | None, tuple[int, ...], int]] = {}
        self._running = running
        self._dropping = _DroppingCalls()

    def after(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], _output: Any, _begun: Any, /) -> None:
        if args and isinstance(args[0], Tensor) and not {"out", "inplace"} & kwargs.keys():
            frame = caller_of_operation(sys._getframe(1))
            if frame is not None and self._dropping.has(frame):
                self._note(name, args[0], frame)

    def _note(self, name: str, tensor: Tensor, frame: FrameType) -> None:
        shape = tuple(tensor.shape)
        if name in _MOVES and tensor.numel() <= 1:
            return
        at = user_line(frame)
        if at is None or not is_own(at.file):
            return
        module, first, calls = self.found.get((name, at), (self._running[-1] if self._running else None, shape, 0))
        if calls or len(self.found) < _MOST:
            self.found[name, at] = module, first, calls + 1


class _DroppingCalls:
    """The calls of a program whose results are dropped, by the offset of the call in its compiled code."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[CodeType, frozenset[int]]] = {}

    def has(self, frame: FrameType) -> bool:
        """Whether the frame drops the result of the call that it makes now."""
        code = frame.f_code
        if id(code) not in self._known:
            self._known[id(code)] = code, _dropping(code)  # the code object is kept, so that its id stays its own
        return frame.f_lasti in self._known[id(code)][1]


def _dropping(code: CodeType) -> frozenset[int]:
    if not is_own(code.co_filename):
        return frozenset()
    pairs = itertools.pairwise(dis.get_instructions(code))
    return frozenset(one.offset for one, following in pairs if following.opname == "POP_TOP")


def _in_place(operation: str) -> str | None:
    return f"{operation}_" if operation not in _MOVES and hasattr(Tensor, f"{operation}_") else None
