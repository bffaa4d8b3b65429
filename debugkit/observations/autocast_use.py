"""Where autocast was on in a step, and in which dtype the large products ran."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine
from debugkit.observations.plain import PlainData


@dataclass(frozen=True)
class Product(PlainData):
    """The matrix products or convolutions of one module in one step; `operations` are multiplications and additions.

    `autocast` is whether autocast was on, for the device the module is on, while it ran.
    """

    module: str
    device: str
    dtype: str
    autocast: bool
    operations: int


@dataclass(frozen=True)
class AutocastRegion(PlainData):
    """One place that switches autocast on, for a device type."""

    device: str
    dtype: str
    at: SourceLine | None


@dataclass(frozen=True)
class AutocastUse(PlainData):
    """The training step: forward passes with gradients, outside backward."""

    regions: tuple[AutocastRegion, ...]
    products: tuple[Product, ...]
