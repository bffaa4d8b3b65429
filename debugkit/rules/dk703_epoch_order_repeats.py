"""Each epoch visits the data in the order of the one before, although it is shuffled.

## What it finds
Before training: a sampler that shuffles and gives the same order twice, from one random state that moves on; or one
whose order stays after `set_epoch(n + 1)`. In a running loop: a shuffling DistributedSampler that is started again for
the same epoch, with steps after each start, because nobody calls `set_epoch`.

## Why it hurts
The same neighbours share a batch in every epoch, so that their noise does not average out. It goes unnoticed.

## Evidence
How many indices were compared, or how often the epoch was started, against a threshold of one; the line that starts it.

## Fix
`sampler.set_epoch(epoch)` before each epoch; in a sampler of one's own, a generator that lives longer than one epoch.

## When it stays silent
Samplers that do not shuffle; a DistributedSampler before training, since only the loop can call `set_epoch`; validation
loaders, after whose start no step is made; fewer than six indices.

## Cost
Two orders of indices, at most a thousand each; no data are read. Under `watch()`: free.

## Lesson
[Lab 72](../../lessons/reproducibility/72_resume.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, NotExamined, Severity
from debugkit.observations.epoch_orders import EpochOrders, TrainedEpochs
from debugkit.registry import Context, rule


@rule(
    "DK703",
    name="epoch-order-repeats",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="data",
    modes=("loader", "watch"),
    needs=(),
    uses=(EpochOrders, TrainedEpochs),
)
def judge(orders: EpochOrders | None, trained: TrainedEpochs | None, context: Context) -> Iterator[Finding]:
    if orders is None and trained is None:
        raise NotExamined(
            "No data loader with a sampler was given, and no DistributedSampler that shuffles was started in a loop."
        )
    yield from _before_training(orders, context) if orders is not None else ()
    yield from _while_training(trained, context) if trained is not None else ()


def _before_training(orders: EpochOrders, context: Context) -> Iterator[Finding]:
    for order in orders.loaders:
        repeats = order.repeats if order.repeats_after_set_epoch is None else order.repeats_after_set_epoch
        if not order.shuffles or not repeats:
            continue
        although = "" if order.repeats_after_set_epoch is None else ", also after set_epoch()"
        yield context.finding(
            f"The {order.role} loader's {order.sampler} gives the same shuffled order in each epoch{although}.",
            evidence={
                "sampler": order.sampler,
                "compared": order.compared,
                "repeats_after_set_epoch": order.repeats_after_set_epoch,
                "threshold": "one index",
            },
            fix="Shuffle with a generator that lives on, or from seed + epoch.",
            # An order that is fixed on purpose, such as one by length, is not ascending either.
            severity=None if order.repeats_after_set_epoch is not None else Severity.WARNING,
            certainty=None if order.repeats_after_set_epoch is not None else Certainty.HEURISTIC,
        )


def _while_training(trained: TrainedEpochs, context: Context) -> Iterator[Finding]:
    for epoch in trained.repeated:
        yield context.finding(
            f"{epoch.sampler} was started {epoch.times} times for epoch {epoch.epoch}, each time in the same order: "
            "set_epoch() was not called.",
            at=epoch.at,
            evidence={"epoch": epoch.epoch, "starts": epoch.times, "threshold": 1},
            fix="Call sampler.set_epoch(epoch) at the start of each epoch.",
        )
