"""Asks, at the end of each step, how many bytes are allocated: on the GPU the model is on, otherwise by the C library.

Allocated bytes are exact; the size of a process, which is what `top` shows, also counts what was freed and kept.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import torch

from debugkit.finding import NotExamined
from debugkit.observations.memory_samples import MemorySamples
from debugkit.probes import Probe, probe
from debugkit.subject import Subject

_MOST = 128  # samples kept; then every second one goes, and half as many are taken
_FIRST = 32  # samples before there is something to judge
_AGAIN = 16


class _MallInfo(ctypes.Structure):
    _names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = [(name, ctypes.c_size_t) for name in _names]


@probe(MemorySamples)
class MemorySamplesProbe(Probe[MemorySamples]):
    """Has something to say after 32 samples, and then after every 16th: judging takes all pairs of them."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        device = next((p.device for p in subject.model.parameters()), torch.device("cpu"))
        self._where, self._allocated = _counter(device)
        self._bytes: list[int] = []
        self._every = 1
        self._steps = 0
        self._since = 0  # samples taken since there was something to say

    def end_step(self, _step: int, /) -> None:
        if self._steps % self._every == 0:
            if len(self._bytes) == _MOST:
                del self._bytes[1::2]
                self._every *= 2
            if self._steps % self._every == 0:
                self._bytes.append(self._allocated())
                self._since += 1
        self._steps += 1

    @property
    def observation(self) -> MemorySamples:
        if len(self._bytes) < _FIRST or self._since < _AGAIN:
            raise NotExamined(f"A slope needs {_FIRST} steps and is looked at now and then: {self._steps} have ended.")
        self._since = 0
        return MemorySamples(self._where, self._every, tuple(self._bytes))


def _counter(device: torch.device) -> tuple[str, Callable[[], int]]:
    """What is counted, and how. Raises NotExamined where nothing here can count."""
    if device.type == "cuda":
        return str(device), lambda: int(torch.cuda.memory_allocated(device))
    try:
        function = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        raise NotExamined(
            "This system's C library does not count what it allocates: watch on a GPU or Linux."
        ) from None
    function.restype = _MallInfo
    return "host", functools.partial(_host_bytes, function)


def _host_bytes(function: Callable[[], _MallInfo]) -> int:
    info = function()
    return int(info.uordblks) + int(info.hblkhd)  # from the heap, and large blocks mapped on their own
