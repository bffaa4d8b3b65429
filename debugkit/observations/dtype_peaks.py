"""The extremes of what modules were given and returned, with the dtype that must hold them."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.observations.plain import PlainData


@dataclass(frozen=True)
class TensorPeak(PlainData):
    """One tensor. `module` is the dotted path; `limit` is the largest value of `dtype`.

    `dtype` is the tensor's own, or float16 where autocast is about to convert it (`converted`). `at_minimum` is how
    many elements are exactly the minimum: a mask's fill stands in many places.
    """

    module: str
    role: str
    dtype: str
    limit: float
    converted: bool
    minimum: float
    maximum: float
    at_minimum: int


@dataclass(frozen=True)
class DtypePeaks(PlainData):
    """One step, in the order of computation; a tensor that several modules hand on is there once."""

    peaks: tuple[TensorPeak, ...]
