"""Several ranks train on the same batches, so that several processes learn no more than one.

## What it finds
In the first eight steps every watched rank publishes a digest of the bits of its training batch: the tensors that the
wrapper (DistributedDataParallel, FullyShardedDataParallel) is called with. The finding names the ranks whose batches
were equal in each step that was compared, three at least.

## Why it hurts
The averaged gradient is then that of one rank, and the other processes cost time and power for nothing. The effective
batch is smaller than the logged one, and a learning rate that was scaled with the number of ranks is too high. Nothing
raises, and the loss falls as usual.

## Evidence
The ranks, the number of steps that were compared, and how many different batches they held. The comparison is bitwise.

## Fix
Give the loader a `DistributedSampler` and call its `set_epoch`, or let accelerate or Lightning prepare the loader.
Where each rank generates its data, as in reinforcement learning, seed it with the rank: `seed + rank`.

## When it stays silent
- A batch that is the same in each step, as where a model is fitted to one batch on purpose.
- Ranks that do not divide the data: no wrapper, or one whose process group is a part of all ranks (model parallelism).
- Samples that each rank augments with random numbers of its own, and an order that each rank draws with its own seed.
- Evaluation, on one rank or on all.

## Cost
One pass over the batch on its device, and one message through the store of the process group, in eight steps. No
collective is called, and no rank waits for another, except for up to three seconds at the end of the loop.

## Lesson
No lab of its own; in [Lab 82](../../lessons/distributed/82_two_validation_losses.md) two ranks learn no more than one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, NotExamined, Severity, SourceLine
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, rule
from debugkit.rule_text import counted, numbered

STEPS = 8
"""Steps whose batch is compared."""
ENOUGH = 3
"""Steps that must have been compared when the loop ends."""


@observed_by(".measure:RankBatchesProbe", processes=2)
@dataclass(frozen=True)
class RankBatches(PlainData):
    """The training batches of this rank beside those of the others.

    `steps` were compared with at least one other rank, from step `first` on. In all of them the ranks in `equal`, this
    one among them, had the same batch; it is empty if none had. `different` counts the different batches of this rank
    in these steps. `at` is the line that called the wrapper.
    """

    rank: int
    world_size: int
    first: int
    steps: int
    different: int
    equal: tuple[int, ...]
    at: SourceLine | None


@rule(
    "DK806",
    name="same-batch-on-ranks",
    severity=Severity.WARNING,
    certainty=Certainty.HEURISTIC,
    modes=("watch",),
    needs=(RankBatches,),
)
def judge(seen: RankBatches, context: Context) -> Iterator[Finding]:
    if not seen.steps:
        raise NotExamined("No other rank has published its batches: enter watch() on every rank.")
    needed = ENOUGH if context.ended else STEPS
    if seen.steps < needed:
        raise NotExamined(f"Fewer than {needed} steps could be compared with another rank.")
    if not seen.equal or seen.different < 2:
        return
    ranks = numbered("rank", seen.equal)
    yield context.finding(
        f"{ranks[0].upper()}{ranks[1:]} had the same training batch in each of {counted(seen.steps, 'step')}: together "
        "they learn no more than one of them.",
        at=seen.at,
        step=seen.first,
        evidence={
            "ranks": list(seen.equal),
            "world_size": seen.world_size,
            "steps_compared": seen.steps,
            "different_batches": seen.different,
            "needed_steps": ENOUGH,
        },
        fix="Use `DistributedSampler(dataset)`, or seed the data of each rank with `seed + rank`.",
    )
