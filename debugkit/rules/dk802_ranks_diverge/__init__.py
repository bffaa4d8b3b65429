"""After a step the ranks have different parameters, so they train different models.

## What it finds
After each of the first steps, and later after every thirteenth, every watched rank publishes a digest of the bits of
each parameter and compares it with those of the other ranks. The finding names the first step and the first tensor
that differ, and which ranks agree.

## Why it hurts
In data-parallel training all ranks must hold the same parameters. Once they differ, the averaged gradients fit none of
them, and the checkpoint, which rank 0 writes, is worse than the logged loss. The causes raise no error: a bypassed
wrapper, an optimizer step or a clip on only some ranks, a parameter that was changed after DDP copied the parameters,
or a different seed per rank before a module that DDP does not wrap.

## Evidence
The step, the tensor, how many of the compared tensors differ, and the groups of ranks that agree. The comparison is
bitwise, so the threshold is zero.

## Fix
In the named step, make every rank do the same: call the wrapper, clip, step and load on all ranks. Parameters stay
equal only if all ranks update them from the same averaged gradients.

## When it stays silent
Running statistics and other buffers, which DDP synchronises at the next forward; parameters that DDP ignores; sharded
models (FSDP, DTensor); local SGD through a communication hook; ranks whose model has a different number of parameters.
If no wrapper holds the model the finding is a `warning`, because each rank may train its own model.

## Cost
One pass over the parameters on their device and one message through the store of the process group, in each of the
first steps and in every thirteenth step after that. No collective is called, and no rank waits for another, except for
up to three seconds at the end of the loop.

## Lesson
No lab of its own; in [Lab 81](../../lessons/distributed/81_one_waits.md) the ranks diverge for one step before
the run hangs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, NotExamined, Severity
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, rule
from debugkit.rule_text import counted, listed, numbered, verb


@dataclass(frozen=True)
class Divergence(PlainData):
    """The first step after which the parameters of the ranks differed.

    Of `compared` tensors, `different` differ; `parameter` is the first of them in the model's order, and `groups` are
    the ranks that agree on it.
    """

    step: int
    parameter: str
    different: int
    compared: int
    groups: tuple[tuple[int, ...], ...]


@observed_by(".measure:RankDigestsProbe", processes=2)
@dataclass(frozen=True)
class RankDigests(PlainData):
    """What this rank knows about the other ranks so far.

    `wrapped` is whether a wrapper should keep the parameters equal; `steps` is the number of steps that were compared
    with at least one other rank; `first` is None as long as all ranks agree.
    """

    rank: int
    world_size: int
    wrapped: bool
    steps: int
    first: Divergence | None


@rule(
    "DK802",
    name="ranks-diverge",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("watch",),
    needs=(RankDigests,),
)
def judge(seen: RankDigests, context: Context) -> Iterator[Finding]:
    if not seen.steps:
        raise NotExamined("No other rank has published its digests: enter watch() on every rank.")
    first = seen.first
    if first is None:
        return
    values = ["one value", *["another"] * (len(first.groups) - 1)]
    held = listed(f"{value} on {numbered('rank', group)}" for value, group in zip(values, first.groups, strict=True))
    yield context.finding(
        f"After step {first.step}, {first.different:,} of {counted(first.compared, 'tensor')} "
        f"{verb(first.different, 'differs', 'differ')} between the ranks. The first is `{first.parameter}`, with "
        f"{held}.",
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
        fix="Do the same on every rank: call the wrapper, clip, step and load on all of them.",
        severity=None if seen.wrapped else Severity.WARNING,
        certainty=None if seen.wrapped else Certainty.HEURISTIC,
    )
