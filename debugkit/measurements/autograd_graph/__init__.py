"""What a walk through the autograd graph, starting at the loss, finds."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.observation import observed_by
from debugkit.plain_data import PlainData


@observed_by(".measure:AutogradGraphProbe")
@dataclass(frozen=True)
class AutogradGraph(PlainData):
    """Which parameters the loss reaches. Names are dotted paths. A tied parameter appears under its first name.

    `used` are the parameters that an operation consumed or whose module ran. `opaque` names the custom Functions
    (including reentrant activation checkpointing) that may hide parameters from the walk.
    """

    nodes: int
    reached: tuple[str, ...]
    unreached: tuple[str, ...]
    used: tuple[str, ...]
    opaque: tuple[str, ...]
