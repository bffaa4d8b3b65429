"""The sampler does not divide the data between the ranks: samples are visited twice or never.

## What it finds
One epoch of the sampler on every rank, in which some samples are visited by several ranks, or by none, beyond the few
that make all parts equally long. The epoch is computed twice: once as if all ranks had drawn the same random numbers so
far, and once as if each rank had drawn different ones. An overlap that only different random numbers cause is a
`warning`, and so is one of a sampler that does not know its rank.

## Why it hurts
With overlap, several GPUs learn no more than one. Samples that no rank visits are never learnt. The loss looks normal.
A sampler that shuffles with the global generator works until one rank draws one random number more than the others, for
example because only that rank evaluates.

## Evidence
The number of samples visited by several ranks and by none, how many of each are allowed for padding and for an
incomplete tail, and the length of each part.

## Fix
Use `DistributedSampler(dataset)`, or shuffle with a separate generator that has the same seed on all ranks:
`torch.randperm(n, generator=g)[rank::world_size]`.

## When it stays silent
DistributedSampler of any length, with and without `drop_last`; samplers and batch samplers that divide the data with
their own seed, also in rounds of a full batch for every rank, which leave out or repeat less than one round. Not
examined: samplers that compute their part when they are created, samplers with replacement, iterable data sets, and
single processes. A sampler that is the same on every rank of a running group is a `warning`, because Lightning and
accelerate replace it later.

## Cost
Reads two orders of indices per rank, for up to 16 ranks and 200,000 samples, and no data.

## Lesson
No lab of its own; [Lab 72](../../lessons/reproducibility/72_a_step_apart.md) is about a sampler's state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import measured_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, rule
from debugkit.rule_text import counted


@dataclass(frozen=True)
class Coverage(PlainData):
    """One epoch of all ranks. `overlapping` counts samples visited by several ranks, `missed` those visited by none."""

    overlapping: int
    missed: int
    of_each_rank: tuple[int, ...]


@dataclass(frozen=True)
class SamplerPartition(PlainData):
    """The orders that one loader's sampler gives on every rank.

    `together` is the coverage if all ranks have drawn the same random numbers so far, `drifted` if each rank has drawn
    different ones. `padding` and `tail` are how many samples may be visited twice, or left out, so that all ranks visit
    equally many, or equally many full batches. `knows_its_rank` is False for a sampler that is the same on every rank.
    """

    role: str
    sampler: str
    world_size: int
    samples: int
    padding: int
    tail: int
    knows_its_rank: bool
    together: Coverage
    drifted: Coverage
    defined_at: SourceLine | None = None
    """Where the program defines the order of the sampler, if it is the program's own."""


@measured_by(".measure:partition_over_ranks", cost=0, requires=("dataloader",))
@dataclass(frozen=True)
class SamplerPartitions(PlainData):
    """One entry for each loader whose sampler could be examined."""

    loaders: tuple[SamplerPartition, ...]


@rule(
    "DK805",
    name="sampler-partition",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("loader",),
    needs=(SamplerPartitions,),
)
def judge(seen: SamplerPartitions, context: Context) -> Iterator[Finding]:
    for loader in seen.loaders:
        if _is_wrong(loader.together, loader):
            yield _finding(loader, loader.together, context)
        elif _is_wrong(loader.drifted, loader):
            yield _finding(loader, loader.drifted, context, drifts=True)


def _is_wrong(coverage: Coverage, loader: SamplerPartition) -> bool:
    return coverage.overlapping > loader.padding or coverage.missed > loader.tail


def _finding(loader: SamplerPartition, coverage: Coverage, context: Context, drifts: bool = False) -> Finding:
    when = " as soon as one rank draws one random number more than the others" if drifts else ""
    sure = loader.knows_its_rank and not drifts
    return context.finding(
        f"The sampler of the {loader.role} loader ({loader.sampler}) does not divide the "
        f"{counted(loader.samples, 'sample')} between the {loader.world_size} ranks{when}: several ranks visit "
        f"{coverage.overlapping:,} of them, and no rank visits {coverage.missed:,}.",
        at=loader.defined_at,
        evidence={
            "overlapping": coverage.overlapping,
            "missed": coverage.missed,
            "of_each_rank": list(coverage.of_each_rank),
            "allowed_overlap": loader.padding,
            "allowed_missed": loader.tail,
            "same_random_numbers": not drifts,
        },
        fix="Use DistributedSampler, or shuffle with a separate generator that has the same seed on all ranks.",
        severity=None if sure else Severity.WARNING,
        certainty=None if sure else Certainty.STATISTICAL if drifts else Certainty.HEURISTIC,
    )
