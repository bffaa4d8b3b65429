"""Ranks visit the same samples, or leave some out, although they were to divide the data.

## What it finds
A sampler is asked for one epoch of every rank, and the parts do not add up: samples that several ranks visit, or that
none does, beyond the few that make all parts equally long. It is asked twice: once as if all ranks had drawn the same
random numbers so far, once as if each had drawn others.

## Why it hurts
Overlap makes several GPUs learn what one could; what is missed is never learnt. The loss looks as it should. A sampler
that shuffles by the global generator is right until one rank draws once more than the others, for instance because it
alone evaluates.

## Evidence
Samples visited by several ranks and by none, what padding and an incomplete tail excuse, the length of each part.

## Fix
`DistributedSampler(dataset)`, or a shuffle by a generator of the sampler's own, seeded alike on all ranks:
`torch.randperm(n, generator=g)[rank::world_size]`.

## When it stays silent
DistributedSampler of any length, with and without `drop_last`; samplers and batch samplers that divide by their own
seed; one that worked out its part when it was made, samplers with replacement, iterable data sets and single
processes are not examined. A sampler that is the same on every rank of a running group is a `warning`: Lightning and
accelerate replace it later.

## Cost
Two orders of indices for each rank, for up to 16 ranks and 200,000 samples; no data are read.

## Lesson
No lab of its own; [Lab 72](../../lessons/reproducibility/72_resume.md) is about a sampler's state.
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.sampler_partition import Coverage, SamplerPartition, SamplerPartitions
from debugkit.registry import Context, rule


@rule(
    "DK805",
    name="sampler-partition",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="data",
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
    when = " as soon as one rank has drawn another random number than the rest" if drifts else ""
    sure = loader.knows_its_rank and not drifts
    return context.finding(
        f"The {loader.role} loader's {loader.sampler} does not divide {loader.samples} samples among "
        f"{loader.world_size} ranks{when}: {coverage.overlapping} are visited by several, {coverage.missed} by none.",
        evidence={
            "overlapping": coverage.overlapping,
            "missed": coverage.missed,
            "of_each_rank": list(coverage.of_each_rank),
            "allowed_overlap": loader.padding,
            "allowed_missed": loader.tail,
            "same_random_numbers": not drifts,
        },
        fix="Use DistributedSampler, or shuffle by a generator of the sampler's own that is seeded alike on all ranks.",
        severity=None if sure else Severity.WARNING,
        certainty=None if sure else Certainty.STATISTICAL if drifts else Certainty.HEURISTIC,
    )
