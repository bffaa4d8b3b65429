"""How a training step used the wrapper that trains one model in several processes."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData


@dataclass(frozen=True)
class Bypass(PlainData):
    """Optimizer steps on gradients that did not come through the wrapper.

    `module` is the part that was called directly and `at` the calling line; both are None if no such call was seen.
    `reduced` is how many numbers the loop itself passed to reductions before the step, out of `elements` trained.
    """

    module: str | None
    at: SourceLine | None
    parameters: int
    elements: int
    reduced: int


@dataclass(frozen=True)
class WrapperUse(PlainData):
    """One wrapper in the last step.

    `module` is the path of the wrapped module. `unused` are those of the wrapper's `parameters` that got no gradient in
    a backward through it; empty if no backward went through it. `synchronises` is False under `no_sync()`.
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


@observed_by(".measure:WrapperUseProbe")
@dataclass(frozen=True)
class WrapperUses(PlainData):
    """The use of each wrapper."""

    wrappers: tuple[WrapperUse, ...]
