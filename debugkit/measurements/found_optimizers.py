"""The optimizers of a run: those that were passed in, or those that have stepped so far."""

from __future__ import annotations

from torch.optim import Optimizer

from debugkit.finding import NotExamined
from debugkit.setup import TrainingSetup

ENOUGH = 8
"""Steps after which each optimizer has had its turn: a critic often steps five times for one step of its generator."""


class FoundOptimizers:
    """An optimizer that was not passed in is found at its first step. Until then, its parameters seem to have none."""

    def __init__(self, setup: TrainingSetup) -> None:
        self.known = list(setup.optimizers)
        self._complete = bool(self.known) and not setup.more_optimizers
        self._steps = 0

    def stepped(self, optimizer: Optimizer) -> None:
        """A step of `optimizer` begins."""
        self._steps += 1
        if not any(optimizer is known for known in self.known):
            self.known.append(optimizer)

    def ended(self) -> None:
        """The loop has ended: what has not stepped is no optimizer of it."""
        self._complete = True

    def require_all(self) -> None:
        """Raises NotExamined while some of them may not have been found."""
        if not self.known:
            raise NotExamined("No optimizer was given: pass optimizer=.")
        if not self._complete and self._steps < ENOUGH:
            raise NotExamined(
                f"Optimizers are found when they step: {self._steps} of {ENOUGH} steps. Or pass optimizer=."
            )
