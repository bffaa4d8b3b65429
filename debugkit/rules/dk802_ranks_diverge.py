"""After a step the ranks hold different parameters: they train different models.

## What it finds
Every watched rank leaves a number for the bits of each parameter after each step, and compares with the others'. The
first step and the first tensor that differ are named, and which ranks agree with one another.

## Why it hurts
Data-parallel training is one model held several times. Once the copies differ, averaged gradients belong to none of
them, and the checkpoint, which is rank 0's, is worse than its loss. The causes are silent: a bypassed wrapper, an
optimizer or a clip on some ranks only, a parameter that was changed by hand after the copies were made, a seed per rank
before a module that DDP does not wrap.

## Evidence
The step, the tensor, how many of the compared tensors differ, the groups of ranks that agree. Bits are compared: the
threshold is zero.

## Fix
Go to the named step and do on every rank what one of them does: call the wrapper, clip, step and load alike. Only what
all ranks computed from the same averaged gradients stays alike.

## When it stays silent
Running statistics and other buffers, which DDP evens out at the next forward; parameters that DDP was told to ignore;
sharded models (FSDP, DTensor); local SGD by a communication hook; ranks whose model has another number of parameters.
Where nothing wraps the model it is a `warning`, since each rank may train its own.

## Cost
2P: a pass over the parameters on their device and one letter through the process group's store, in each of the first
steps and in one of seven after. No collective, and no rank waits for another; at the end of the loop up to three
seconds.

## Lesson
No lab of its own; in [Lab 81](../../lessons/distributed/81_missing_image_hang.md) ranks part for one step before it
hangs.
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, NotExamined, Severity
from debugkit.observations.rank_digests import RankDigests
from debugkit.registry import Context, rule


@rule(
    "DK802",
    name="ranks-diverge",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="2P",
    modes=("watch",),
    needs=(RankDigests,),
)
def judge(seen: RankDigests, context: Context) -> Iterator[Finding]:
    if not seen.steps:
        raise NotExamined("No other rank has left its digests: enter watch() on every rank.")
    first = seen.first
    if first is None:
        return
    groups = " and ".join(_ranks(group) for group in first.groups)
    yield context.finding(
        f"After step {first.step} the ranks hold different parameters, first {first.parameter}: {groups} differ "
        f"({first.different} of {first.compared} tensors do).",
        parameter=first.parameter,
        module=first.parameter.rpartition(".")[0],
        step=first.step,
        evidence={
            "different": first.different,
            "compared": first.compared,
            "groups": [list(group) for group in first.groups],
            "steps_compared": seen.steps,
            "threshold": 0,
        },
        fix="Do the same on every rank: call the wrapper, and clip, step and load alike.",
        severity=None if seen.wrapped else Severity.WARNING,
        certainty=None if seen.wrapped else Certainty.HEURISTIC,
    )


def _ranks(group: tuple[int, ...]) -> str:
    return f"rank {group[0]}" if len(group) == 1 else f"ranks {', '.join(map(str, group))}"
