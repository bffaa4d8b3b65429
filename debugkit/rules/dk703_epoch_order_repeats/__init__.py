"""Every epoch visits the data in the same order, or every step reads the same batch.

## What it finds
- Before training: a shuffling sampler that gives the same order twice, although the random state has advanced, or whose
  order does not change after `set_epoch(n + 1)`.
- In a running loop: a shuffling DistributedSampler that is iterated again for the same epoch, with training steps each
  time, because the loop does not call `set_epoch`.
- In a running loop: a loader with `shuffle=True` (a RandomSampler or a SubsetRandomSampler) that gives an order it gave
  in an earlier epoch, because its generator or the global one was seeded again.
- In a running loop: a loader that is started again for each step (`next(iter(loader))`), and gives the same first batch
  of several each time.
- In a running loop: a loader that shuffles and is read once, after which the loop trains on the batches of that pass
  again, in the same order. `itertools.cycle(loader)` keeps them, with the random augmentation of the first epoch.

All but the first two with `set_epoch` are a `warning`, because the order may be fixed on purpose.

## Why it hurts
The same samples share a batch in every epoch, so the noise of the gradients does not average out. Nothing reports it.

## Evidence
The number of indices that were compared, or how often the epoch was started (more than once is a finding), and the line
that starts it, or that seeded the global generator last. For batches that were kept, how many of them the model was
called with again, each at the place that it had in the first pass: at least a whole pass, or 16. A batch is recognised
by its tensors, or by their values after a copy to a device.

## Fix
Call `sampler.set_epoch(epoch)` before each epoch. In your own sampler, keep one generator for all epochs. Seed once,
before the first epoch. Make one iterator for an epoch: `for batch in loader:`. In place of `itertools.cycle(loader)`,
use a generator with `while True: yield from loader`.

## When it stays silent
Samplers that do not shuffle; a DistributedSampler before training, because only the loop can call `set_epoch`;
validation loaders, whose iteration is not followed by a training step; fewer than six indices, or ten in a running
loop; one batch that is read once and trained on in every step; a validation batch that is read in each step.

Batches that are kept on purpose: of a loader that does not shuffle, fewer than three, or only a part of an epoch; those
that come back in another order, as of a replay buffer or after `random.shuffle`; all batches of an epoch for one step.
If the loader is started again later, nothing is reported. Up to eight passes over kept batches are reported only when
the loop has ended. Batches that are changed before the model gets them, such as by `x / 255`, are not recognised.

## Cost
Reads two orders of at most a thousand indices each, and no data. In a loop, keeps the first 64 indices of each epoch,
and refers to batches weakly, with about 64 values of each tensor.

## Lesson
[Lab 83](../../lessons/distributed/83_learns_all_but_a_few.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, NotExamined, Severity, SourceLine
from debugkit.observation import measured_by, observed_by
from debugkit.rule import Context, rule
from debugkit.rule_text import counted

SAME_BATCHES = 4
"""Steps for each of which the loader was started again."""


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


@dataclass(frozen=True, slots=True)
class RepeatedOrder:
    """A sampler that shuffles and gave an order that it had given before, with training steps each time."""

    sampler: str
    epochs: int
    """How often it was iterated with training steps."""
    times: int
    """How many of these had an order that had been there before."""
    compared: int
    """The number of indices that were equal, in their order."""
    at: SourceLine | None
    seeded: bool
    """Whether the line is one that seeded the global generator; otherwise it started the epoch."""


@dataclass(frozen=True, slots=True)
class SameBatch:
    """A loader that was started again for each of several steps, and read no further than the same first indices."""

    sampler: str
    steps: int
    read: int
    """The largest number of indices that were read after one start."""
    size: int
    """The number of indices in an epoch."""
    at: SourceLine | None


@dataclass(frozen=True, slots=True)
class KeptPass:
    """The batches of a finished pass of a sampler that shuffles, on which the loop trained again in the same order."""

    sampler: str
    batches: int
    again: int
    """How many of them the model was called with again; no other pass of the loader was started."""
    at: SourceLine | None
    """The line that started the pass, or one that read it, if it was started before the loop was observed."""


@observed_by(".measure:TrainedEpochsProbe")
@dataclass(frozen=True, slots=True)
class TrainedEpochs:
    """The iterations of samplers in a live loop that were followed by training steps."""

    repeated: tuple[RepeatedEpoch, ...]
    """Repeated epochs of distributed samplers."""
    starts: int
    orders: tuple[RepeatedOrder, ...] = ()
    same_batch: tuple[SameBatch, ...] = ()
    kept: tuple[KeptPass, ...] = ()


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
            "No data loader with a sampler was given, and no loop trained on one whose sampler is one of torch's."
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
    for order in trained.orders:
        yield context.finding(
            f"{counted(order.times, 'epoch')} of {order.epochs} had an order that an earlier one had: the first "
            f"{order.compared} indices of the {order.sampler} are equal.",
            at=order.at,
            evidence={"epochs": order.epochs, "times": order.times, "compared": order.compared, "threshold": 1},
            fix="Do not seed the global generator inside the loop."
            if order.seeded
            else "Seed the generator of the loader once, before the first epoch.",
            severity=Severity.WARNING,
        )
    for same in trained.same_batch:
        yield context.finding(
            f"The loader was started again for each of {same.steps} steps and gave the same first batch each time: "
            f"{same.read} of {counted(same.size, 'index', 'indices')} were read.",
            at=same.at,
            evidence={"steps": same.steps, "read": same.read, "size": same.size, "threshold": SAME_BATCHES},
            fix="Make one iterator for each epoch: `for batch in loader:`.",
            severity=Severity.WARNING,
        )
    for kept in trained.kept:
        yield context.finding(
            f"The loader was read once, and the loop trained on its {kept.batches:,} batches again in the same order: "
            f"{counted(kept.again, 'batch', 'batches')} came back. The {kept.sampler} shuffled only the first epoch, "
            "and random augmentation is that of the first epoch, too.",
            at=kept.at,
            evidence={"batches": kept.batches, "again": kept.again, "threshold": f"{kept.batches} or 16"},
            fix="Start the loader again for each epoch. In place of `itertools.cycle(loader)`, which keeps the batches "
            "of its first pass, use a generator with `while True: yield from loader`.",
            severity=Severity.WARNING,
            certainty=Certainty.PROOF,
        )
