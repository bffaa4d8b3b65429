"""Losses of earlier steps whose autograd graph is still alive, and who holds them."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine
from debugkit.observations.plain import PlainData


@dataclass(frozen=True)
class Holder(PlainData):
    """What keeps the graphs: a variable or attribute as the program names it, and the line that adds to it."""

    name: str
    kind: str
    at: SourceLine | None
    graph_nodes: int


@dataclass(frozen=True)
class RetainedGraphs(PlainData):
    """After each of the last steps: how many graphs of losses of earlier steps were alive; the holder once known."""

    alive: tuple[int, ...]
    holder: Holder | None = None

    @property
    def rises(self) -> int:
        """After how many steps there were more than before."""
        return sum(later > earlier for earlier, later in zip((0, *self.alive), self.alive, strict=False))

    @property
    def falls(self) -> int:
        """After how many steps there were fewer than before."""
        return sum(later < earlier for earlier, later in zip(self.alive, self.alive[1:], strict=False))
