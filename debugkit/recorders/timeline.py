"""The smallest and largest value of every result of a step, in the order of computation, read with one transfer.

Minimum and maximum are enough to find the first non-finite value: `torch.aminmax` returns NaN for both if there is a
NaN, and an Inf in one of them if there is an Inf. They stay on the device until `read()`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from debugkit.finding import SourceLine

Kind = Literal["output", "op", "given", "loss", "gradient", "gradient_in", "gradient_out", "held_gradient"]
"""output: of a module. op: of an operation outside every module. given: an input of such an operation from outside the
graph. loss: the tensor that backward() was called on. gradient_in, gradient_out: a gradient that left or entered an
autograd node outside every module. gradient: a gradient that reached the output of a module call. held_gradient:
`.grad` just before a new gradient is added to it."""


class Entry(NamedTuple):
    """The origin of a range on the timeline."""

    kind: Kind
    name: str
    call: int  # index of the module call; -1 outside every module call
    at: SourceLine | None


class Range(NamedTuple):
    """An entry with the values that were read for it."""

    entry: Entry
    minimum: float
    maximum: float

    @property
    def nonfinite(self) -> str | None:
        """`NaN`, `Inf`, `-Inf` (without a NaN or Inf, usually a mask), or None if all values are finite."""
        return nonfinite_kind(self.minimum, self.maximum)


def nonfinite_kind(minimum: float, maximum: float) -> str | None:
    """The worst kind of non-finite value in a range."""
    if math.isnan(minimum) or math.isnan(maximum):
        return "NaN"
    if maximum == math.inf:
        return "Inf"
    return "-Inf" if minimum == -math.inf else None


class Timeline:
    """The ranges of one step, pending on the device."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._extremes: list[Tensor] = []  # two 0-d tensors for each entry

    def __len__(self) -> int:
        return len(self._entries)

    def record(self, kind: Kind, name: str, tensor: Tensor, call: int = -1, at: SourceLine | None = None) -> None:
        """Record the range of `tensor`, for which `has_range` must be true."""
        values = tensor.detach()
        if values.is_complex():
            values = torch.view_as_real(values)
        self._extremes.extend(torch.aminmax(values))
        self._entries.append(Entry(kind, name, call, at))

    def read(self, also: Sequence[Tensor] = ()) -> tuple[list[Range], list[float]]:
        """The ranges so far and the scalars of `also`, in one transfer per device; the timeline is empty afterwards."""
        entries, extremes = self._entries, self._extremes
        self._entries, self._extremes = [], []
        values = _to_host([*extremes, *also])
        ranges = [Range(entry, values[2 * i], values[2 * i + 1]) for i, entry in enumerate(entries)]
        return ranges, values[2 * len(entries) :]

    def clear(self) -> None:
        """Discard the pending ranges."""
        self._entries, self._extremes = [], []


_MEASURABLE = frozenset(
    (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128)
)
"""Without integers, and without 8-bit floats, which have no `aminmax`."""


def has_range(tensor: Tensor) -> bool:
    """Whether `record` can measure a tensor: dense, floating or complex, not empty, and no tensor subclass."""
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


def describe_kind(tensor: Tensor) -> str | None:
    """The worst of NaN, Inf and -Inf in `tensor`, or None. Waits for the device."""
    return kind_of(tensor) if has_range(tensor) else None


def kind_of(tensor: Tensor) -> str | None:
    """The same for a tensor that has a range."""
    values = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    minimum, maximum = torch.aminmax(values.detach())
    return nonfinite_kind(float(minimum), float(maximum))
