"""Record the allocated bytes between the steps: on the model's GPU, otherwise as counted by the C library.

A step's graph often lives until the variables of the loop are overwritten or a list of the episode is emptied, after
`optimizer.step()` has returned. So a step's sample is taken when the model is called for the next one.

Allocated bytes are exact. The process size that `top` shows also includes memory that was freed but kept in reserve.
"""

from __future__ import annotations

import ctypes
import functools
import gc
from collections.abc import Callable
from typing import Any

import torch

from debugkit._torch_private import is_compiled
from debugkit.finding import NotExamined
from debugkit.probe import Probe
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.rules.dk602_memory_slope import ENOUGH, GROWTH, LEAST_GROWTH, MemorySamples, growth_of
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in

_MOST = 64  # samples kept; beyond it one in four is, and samples are taken a quarter as often
_THINNED = 4
_MOST_SHAPES = 4096
_AGAIN = 16  # samples between two observations


class _MallInfo(ctypes.Structure):
    _names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = [(name, ctypes.c_size_t) for name in _names]


class MemorySamplesProbe(Probe[MemorySamples]):
    """Gives an observation at the end, and after 32 samples and every 16 more: judging takes time quadratic in them."""

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        device = next((p.device for p in setup.model.parameters()), torch.device("cpu"))
        self._where, self._allocated = _counter(device)
        trained = [p for p in setup.model.parameters() if p.requires_grad]
        self._weights = sum(p.numel() * p.element_size() for p in trained)
        self._bytes: list[int] = []
        self._new: list[bool] = []  # for each sample, whether the call at which it was taken has inputs of new shapes
        self._shapes: set[int] = set()
        self._every = 1
        self._steps = 0
        self._since = 0  # samples taken since the last observation
        self._ended = False
        self._garbage = 0
        self._due = False  # a step has ended, and its memory was not recorded yet
        self._calls = ModuleCalls([("", setup.model)], before=self._called)
        self._stays = is_compiled(setup.model)  # a compiled model may be compiled again when its hooks change

    def __exit__(self, *error: object) -> None:
        self._calls.remove()

    def end_step(self, _step: int, /) -> None:
        self._take()  # the step that ended before this one, if the model was not called itself
        if self._steps % self._every:
            self._steps += 1  # not sampled, so no call of the model has to be awaited
            return
        self._due = True
        if not self._calls:
            self._calls.__enter__()

    def _called(self, _path: str, _module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if self._due:
            self._take(hash(tuple(tensor.shape for _, tensor in tensors_in((args, kwargs)))))

    def _take(self, shapes: int | None = None) -> None:
        if not self._due:
            return
        self._due = False
        if not self._stays:
            self._calls.remove()  # until the next step has ended: a loop may call the model many times in one
        if self._steps % self._every == 0:
            if len(self._bytes) == _MOST:
                self._bytes, self._new = self._bytes[::_THINNED], self._new[::_THINNED]
                self._every *= _THINNED
            if self._steps % self._every == 0:
                self._bytes.append(self._allocated())
                self._new.append(shapes is not None and shapes not in self._shapes)
                self._since += 1
                if shapes is not None and len(self._shapes) < _MOST_SHAPES:
                    self._shapes.add(shapes)
        self._steps += 1

    def loop_ended(self) -> None:
        self._ended = True  # without the last step: at the end of a loop its batch is gone, too
        grown = growth_of(self._bytes)
        if grown >= LEAST_GROWTH and (len(self._bytes) < ENOUGH or grown < GROWTH):
            before = self._allocated()
            gc.collect()
            self._garbage = max(0, before - self._allocated())

    @property
    def observation(self) -> MemorySamples:
        if not self._ended and (len(self._bytes) < ENOUGH or self._since < _AGAIN):
            raise NotExamined(
                f"A memory slope needs {ENOUGH} samples and is computed after every {_AGAIN}; {self._steps} steps have "
                "ended so far."
            )
        self._since = 0
        return MemorySamples(
            self._where, self._every, tuple(self._bytes), self._weights, self._garbage, tuple(self._new)
        )


def _counter(device: torch.device) -> tuple[str, Callable[[], int]]:
    """The name of what is counted, and a function that counts it. Raises NotExamined if neither counter works here."""
    if device.type == "cuda":
        return str(device), lambda: int(torch.cuda.memory_allocated(device))
    try:
        function = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        raise NotExamined(
            "The C library of this system does not count allocated bytes: watch the run on a GPU or on Linux."
        ) from None
    function.restype = _MallInfo
    return "host", functools.partial(_host_bytes, function)


def _host_bytes(function: Callable[[], _MallInfo]) -> int:
    info = function()
    return int(info.uordblks) + int(info.hblkhd)  # the heap, and large blocks with their own mapping
