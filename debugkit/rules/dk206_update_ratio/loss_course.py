"""What the loss did in the run: whether it is lost, as it is after a learning rate that is far too high."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from debugkit.loop.losses import Losses
from debugkit.rule_text import amount

_FEWEST = 12
_LAST = 5
_RISEN = 1.5
_TRIPLED = 3.0
_BACK = 0.9


@dataclass(frozen=True)
class LossCourse:
    """The first loss, the largest, the usual one of the last steps, and the first step without a finite one."""

    start: float
    largest: float
    now: float
    nonfinite_since: int | None
    count: int
    comparable: bool = True
    """Whether each loss comes from about as many calls of the model."""

    @property
    def is_positive(self) -> bool:
        """Whether ratios of the losses have a meaning."""
        return self.start > 0.0 and self.now > 0.0 and self.nonfinite_since is None

    @property
    def has_risen(self) -> bool:
        """Whether it has risen by half at least once, or is not finite any more."""
        return not self.is_positive or self.largest >= _RISEN * self.start

    @property
    def is_lost(self) -> bool:
        """Whether it is not finite any more, or has risen by half and is not below nine tenths of its start."""
        if self.nonfinite_since is not None:
            return True
        risen = self.largest >= _RISEN * self.start and self.now >= _BACK * self.start
        return self.count >= _FEWEST and self.is_positive and self.comparable and risen

    @property
    def has_exploded(self) -> bool:
        """Whether it has tripled, although it may have come back."""
        return self.is_positive and self.comparable and self.largest >= _TRIPLED * self.start

    @property
    def in_words(self) -> str:
        """The end of a sentence."""
        if self.nonfinite_since is not None:
            return f"the loss is not finite since step {self.nonfinite_since}"
        start, largest, now = map(amount, (self.start, self.largest, self.now))
        return f"the loss rose from {start} to {largest} and is {now} now"

    @property
    def evidence(self) -> dict[str, object]:
        """The numbers and what they were compared with."""
        return {
            "first_loss": self.start,
            "largest_loss": self.largest,
            "loss_now": self.now,
            "nonfinite_since": self.nonfinite_since,
            "losses": self.count,
            "needed_rise": _RISEN,
            "needed_share_of_the_first": _BACK,
        }


def course_of(losses: Losses | None) -> LossCourse | None:
    """None without a finite first loss, or with a loss below 0, whose ratios have no meaning."""
    if losses is None or not losses.first or not math.isfinite(losses.first[0].value):
        return None
    values = [loss.value for loss in (*losses.first, *losses.last)]
    finite = [value for value in values if math.isfinite(value)]
    if min(finite) < 0.0:
        return None
    last = losses.last[-1]
    bad = next((loss.step for loss in losses.last if not math.isfinite(loss.value)), None)
    return LossCourse(
        start=losses.first[0].value,
        largest=max(finite),
        now=median([loss.value for loss in losses.last if math.isfinite(loss.value)][-_LAST:] or finite[:1]),
        nonfinite_since=bad if bad is not None and not math.isfinite(last.value) else None,
        count=len(losses.last),
        comparable=losses.comparable,
    )
