"""How many experiments check() runs: 40 forward passes, or as many as fit into five seconds. Does not import torch."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

PASSES = 40.0
SECONDS = 5.0
STEP_PASSES = 3.0
"""Forward, and a backward that costs twice as much."""
_MOST_WAITING = 8.0
"""By what factor a shared machine may slow check() down before the time is counted after all."""


class Stopwatch:
    """The time that this process has worked, so that a busy machine leaves out no experiment.

    Elapsed time, or the processor time of this process and of the children that have ended where that is less:
    what other processes take is not counted. A process that only waits is charged an eighth of the elapsed time.
    """

    def __init__(self) -> None:
        self._began, self._used = time.monotonic(), _processor_seconds()

    @property
    def seconds(self) -> float:
        """Since the stopwatch was made."""
        elapsed = time.monotonic() - self._began
        return max(min(elapsed, _processor_seconds() - self._used), elapsed / _MOST_WAITING)


def _processor_seconds() -> float:
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


@dataclass
class Spending:
    """What the experiments have cost so far, and what they may cost."""

    budget: float | None
    """The forward passes that the caller allows. None for 40, and for more while they take less than five seconds."""
    step_seconds: float
    """The duration of the observed step; 0.0 if none was observed."""
    passes: float = 0.0
    seconds: float = 0.0

    def affords(self, cost: float) -> bool:
        """Whether an experiment of this many forward passes may still run."""
        limit = PASSES if self.budget is None else self.budget
        if not cost or self.passes + cost <= limit:
            return True
        return self.budget is None and 0 < self.seconds + self.expected_seconds(cost) <= SECONDS

    def spend(self, cost: float, seconds: float) -> None:
        """Count an experiment that has run."""
        self.passes += cost
        self.seconds += seconds

    def expected_seconds(self, cost: float) -> float:
        """The expected duration of this many forward passes, from everything that was measured so far."""
        return cost * (self.step_seconds + self.seconds) / (STEP_PASSES + self.passes)

    @property
    def most_passes(self) -> float:
        """How many forward passes may run in all, as far as it is known before they run."""
        if self.budget is not None or not self.step_seconds:
            return PASSES if self.budget is None else self.budget
        return max(PASSES, SECONDS / self.expected_seconds(1.0))

    @property
    def spent(self) -> str:
        """Which budget is spent, in words."""
        if self.budget is not None:
            return f"the budget of {self.budget:g} is spent"
        return f"the budget of {PASSES:g}, or of {SECONDS:g} s, is spent"
