"""The data are shuffled, but every epoch visits them in the same order.

## What it finds
- Before training: a shuffling sampler that gives the same order twice, although the random state has advanced, or whose
  order does not change after `set_epoch(n + 1)`.
- In a running loop: a shuffling DistributedSampler that is iterated again for the same epoch, with training steps each
  time, because the loop does not call `set_epoch`.

A sampler without `set_epoch` whose order repeats is a `warning`, because the order may be fixed on purpose.

## Why it hurts
The same samples share a batch in every epoch, so the noise of the gradients does not average out. Nothing reports it.

## Evidence
The number of indices that were compared, or how often the epoch was started (more than once is a finding), and the line
that starts it.

## Fix
Call `sampler.set_epoch(epoch)` before each epoch. In your own sampler, keep one generator for all epochs.

## When it stays silent
Samplers that do not shuffle; a DistributedSampler before training, because only the loop can call `set_epoch`;
validation loaders, whose iteration is not followed by a training step; fewer than six indices.

## Cost
Reads two orders of at most a thousand indices each, and no data.

## Lesson
[Lab 72](../../lessons/reproducibility/72_a_step_apart.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, NotExamined, Severity, SourceLine
from debugkit.observation import measured_by, observed_by
from debugkit.rule import Context, rule


@dataclass(frozen=True, slots=True)
class EpochOrder:
    """The order of indices in two epochs of one loader; no data are read."""

    role: str
    sampler: str
    shuffles: bool
    """Whether the first order is not ascending."""
    repeats: bool
    """Whether the second epoch has the same order as the first."""
    repeats_after_set_epoch: bool | None
    """The same, with `set_epoch(n + 1)` in between; None if the sampler has no such method."""
    compared: int


@measured_by(".order_two_epochs:order_two_epochs", cost=0, requires=("dataloader",))
@dataclass(frozen=True, slots=True)
class EpochOrders:
    """One entry for each loader whose sampler could be examined."""

    loaders: tuple[EpochOrder, ...]


@dataclass(frozen=True, slots=True)
class RepeatedEpoch:
    """A sampler with `set_epoch` that was iterated several times for the same epoch, with training steps each time."""

    sampler: str
    epoch: int
    times: int
    at: SourceLine | None


@observed_by(".measure:TrainedEpochsProbe")
@dataclass(frozen=True, slots=True)
class TrainedEpochs:
    """The iterations of shuffling distributed samplers in a live loop that were followed by training steps."""

    repeated: tuple[RepeatedEpoch, ...]
    starts: int


@rule(
    "DK703",
    name="epoch-order-repeats",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("loader", "watch"),
    needs=(),
    uses=(EpochOrders, TrainedEpochs),
)
def judge(orders: EpochOrders | None, trained: TrainedEpochs | None, context: Context) -> Iterator[Finding]:
    if orders is None and trained is None:
        raise NotExamined(
            "No data loader with a sampler was given, and no loop iterated a DistributedSampler that shuffles."
        )
    yield from _before_training(orders, context) if orders is not None else ()
    yield from _while_training(trained, context) if trained is not None else ()


def _before_training(orders: EpochOrders, context: Context) -> Iterator[Finding]:
    for order in orders.loaders:
        repeats = order.repeats if order.repeats_after_set_epoch is None else order.repeats_after_set_epoch
        if not order.shuffles or not repeats:
            continue
        although = "" if order.repeats_after_set_epoch is None else ", even after `set_epoch()`"
        yield context.finding(
            f"The sampler of the {order.role} loader ({order.sampler}) gives the same shuffled order in every "
            f"epoch{although}.",
            evidence={
                "sampler": order.sampler,
                "compared": order.compared,
                "repeats_after_set_epoch": order.repeats_after_set_epoch,
                "threshold": "one index",
            },
            fix="Shuffle with one generator for all epochs, or with the seed plus the epoch.",
            # An order that is fixed on purpose, for example by length, is not ascending either.
            severity=None if order.repeats_after_set_epoch is not None else Severity.WARNING,
            certainty=None if order.repeats_after_set_epoch is not None else Certainty.HEURISTIC,
        )


def _while_training(trained: TrainedEpochs, context: Context) -> Iterator[Finding]:
    for epoch in trained.repeated:
        yield context.finding(
            f"{epoch.sampler} was iterated {epoch.times} times for epoch {epoch.epoch}, in the same order each time: "
            "`set_epoch()` was not called.",
            at=epoch.at,
            evidence={"epoch": epoch.epoch, "starts": epoch.times, "threshold": 1},
            fix="Call `sampler.set_epoch(epoch)` at the start of each epoch.",
        )
