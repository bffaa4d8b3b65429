"""Smallest and largest value of everything a step computes, in the order it was computed, read with one transfer.

A minimum and a maximum say it all: `torch.aminmax` carries a NaN into both and an Inf into one, so that one pass gives
the range and finds the first non-finite value. They stay on the device until `read()`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from debugkit.finding import SourceLine

Kind = Literal["output", "op", "given", "loss", "gradient", "gradient_in", "gradient_out", "held_gradient"]
"""output: of a module. op: outside every module. given: a value that op took from outside the graph. loss: what
backward() was called on. gradient_in/_out: what entered and left an autograd node outside every module (gradient: what
reached the output of a module call). held_gradient: `.grad` as a new gradient is about to be added to it."""


class Entry(NamedTuple):
    """What a range on the timeline belongs to."""

    kind: Kind
    name: str
    call: int  # index of the module call it happened in; -1 outside
    at: SourceLine | None


class Range(NamedTuple):
    """One read entry."""

    entry: Entry
    minimum: float
    maximum: float

    @property
    def nonfinite(self) -> str | None:
        """`NaN`, `Inf`, `-Inf` (nothing above it: usually a mask), or None where all values are finite."""
        return nonfinite_kind(self.minimum, self.maximum)


def nonfinite_kind(minimum: float, maximum: float) -> str | None:
    """Which kind of non-finite value a range shows, the worst one."""
    if math.isnan(minimum) or math.isnan(maximum):
        return "NaN"
    if maximum == math.inf:
        return "Inf"
    return "-Inf" if minimum == -math.inf else None


class Timeline:
    """The ranges of one step, pending on the device."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._extremes: list[Tensor] = []  # two 0-d tensors an entry

    def __len__(self) -> int:
        return len(self._entries)

    def record(self, kind: Kind, name: str, tensor: Tensor, call: int = -1, at: SourceLine | None = None) -> None:
        """Note the range of `tensor`; whatever has no range (empty, integer, sparse, a subclass) is passed over."""
        values = tensor.detach()
        if values.is_complex():
            values = torch.view_as_real(values)
        self._extremes.extend(torch.aminmax(values))
        self._entries.append(Entry(kind, name, call, at))

    def read(self, also: Sequence[Tensor] = ()) -> tuple[list[Range], list[float]]:
        """The ranges so far and the scalars of `also`, in one transfer from each device; the timeline is empty then."""
        entries, extremes = self._entries, self._extremes
        self._entries, self._extremes = [], []
        values = _to_host([*extremes, *also])
        ranges = [Range(entry, values[2 * i], values[2 * i + 1]) for i, entry in enumerate(entries)]
        return ranges, values[2 * len(entries) :]

    def clear(self) -> None:
        """Forget what is pending."""
        self._entries, self._extremes = [], []


_MEASURABLE = frozenset(
    (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128)
)
"""Neither integers nor 8-bit floats, which have no `aminmax`."""


def has_range(tensor: Tensor) -> bool:
    """Whether `record` can measure it: dense, floating or complex, not empty, and no tensor subclass."""
    return (
        type(tensor) in (Tensor, torch.nn.Parameter)
        and tensor.dtype in _MEASURABLE
        and tensor.layout is torch.strided
        and tensor.numel() > 0
        and tensor.device.type != "meta"
    )


def _to_host(scalars: list[Tensor]) -> list[float]:
    if not scalars:
        return []
    devices = {scalar.device for scalar in scalars}
    if len(devices) == 1:
        return [float(value) for value in torch.stack(scalars).tolist()]
    values = [0.0] * len(scalars)
    for device in devices:
        places = [i for i, scalar in enumerate(scalars) if scalar.device == device]
        for place, value in zip(places, torch.stack([scalars[i] for i in places]).tolist(), strict=True):
            values[place] = float(value)
    return values
