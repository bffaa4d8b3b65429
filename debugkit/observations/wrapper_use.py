"""How a step went through the wrapper that makes several processes train one model."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine
from debugkit.observations.plain import PlainData


@dataclass(frozen=True)
class Bypass(PlainData):
    """Optimizer steps on gradients that came by another way than through the wrapper.

    `module` is the part that was called by itself, `at` the line that called it; both None where none was seen.
    `reduced` is how many numbers were handed to reductions by hand before the step, of `elements` trained.
    """

    module: str | None
    at: SourceLine | None
    parameters: int
    elements: int
    reduced: int


@dataclass(frozen=True)
class WrapperUse(PlainData):
    """One wrapper in the step just ended.

    `module` is the path of what is wrapped. `unused` are the parameters, of the `parameters` that it reduces, to which
    no gradient came in a backward through it; empty where none went through. `synchronises` is False under `no_sync()`.
    """

    kind: str
    module: str
    rank: int
    world_size: int
    parameters: int
    finds_unused: bool
    static_graph: bool
    synchronises: bool
    forwards: int
    unused: tuple[str, ...]
    bypass: Bypass | None


@dataclass(frozen=True)
class WrapperUses(PlainData):
    """One entry for each wrapper."""

    wrappers: tuple[WrapperUse, ...]
