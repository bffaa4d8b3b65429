"""Whether a training step gives the same twice from the same start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from debugkit.finding import SourceLine

Source = Literal["draw", "kernel", "outside", "backward"]
"""draw: a random operation that the seed does not reach. kernel: an operation that gave another result for the same
input. outside: a value that came from outside torch (a clock, a counter, operating-system randomness). backward: the
forward pass was equal and a gradient was not."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two equal steps first differ."""

    source: Source
    module: str | None
    operation: str | None = None
    at: SourceLine | None = None
    parameter: str | None = None


@dataclass(frozen=True, slots=True)
class RepeatedStep:
    """Two passes and their gradients compared, bit for bit."""

    compared: int
    """Module outputs, losses and gradients."""
    different: int
    first: Divergence | None
