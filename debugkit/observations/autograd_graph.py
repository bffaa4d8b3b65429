"""What a walk from the loss through the autograd graph met."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.observations.plain import PlainData


@dataclass(frozen=True)
class AutogradGraph(PlainData):
    """Which parameters the loss reaches. Names are dotted paths; a tied parameter appears under its first name.

    `used` is what an operation consumed or whose module ran; `opaque` names the custom Functions (reentrant activation
    checkpointing among them) that may hide parameters from the walk.
    """

    nodes: int
    reached: tuple[str, ...]
    unreached: tuple[str, ...]
    used: tuple[str, ...]
    opaque: tuple[str, ...]
