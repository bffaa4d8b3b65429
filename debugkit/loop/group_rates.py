"""The learning rates that the groups of an optimizer were built with, and whether its steps used them."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine
from debugkit.plain_data import PlainData


@dataclass(frozen=True)
class GroupRates(PlainData):
    """Those of one optimizer that was built with different learning rates.

    A group that held nothing trainable in any step is left out of `built`.
    """

    optimizer: int
    built: tuple[float, ...]
    """The rate of each group before the first step."""
    now: tuple[float, ...]
    """Those of all groups, or of the last step if the optimizer no longer exists."""
    at: SourceLine | None
    """The line that built the optimizer."""
    first: float
    """The first rate that was used for all groups; 0 if none was."""
    equal_steps: int
    """How many steps used one rate, which is not 0, for all groups."""
    different_steps: int
    """How many other steps there were."""
    last_different: int
    """The number of the last other step, from 0; -1 if there was none."""
