"""A sample computed alone differs from the same sample in a padded batch, or from itself with a cache.

## What it finds
Two comparisons that should be equal and are not. The row with the most padding is computed alone and without padding,
and compared with the same row in the batch. The last position of a text is computed in one pass, and compared with the
same position computed from a cache of the earlier keys and values.

## Why it hurts
Training uses batches; the robot computes one sample, with a cache. If the two differ, every batched evaluation of the
policy is wrong.

## Evidence
`moved` and `loss_moved` of the single row, and `cache_moved`, compared with the floor of DK303.

## Fix
Derive positions from the mask, mask padding in every layer, and read the last position with content. With a cache,
continue the positions after the cached ones.

## When it stays silent
Batches without padding and models without a cache are not examined. The outputs of models that draw noise per sample
are not compared. If the padding (DK303, DK309) or another sample (DK305) is the cause, this finding is reported as its
consequence.

## Cost
Shared with DK303 and DK309, except one pass for the cache.

## Lesson
[Lab 33](../../lessons/data/33_lost_on_the_robot.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, NotExamined, Severity
from debugkit.measurements.padding import PaddingReaction
from debugkit.observation import measured_by
from debugkit.rule import Context, rule


@measured_by(".measure:compare_cache", cost=1, requires=("batch",))
@dataclass(frozen=True, slots=True)
class CachedGeneration:
    """The last position of a text computed in one pass, compared with the same position computed from a cache."""

    module: str
    """The module that keeps the cache."""
    moved: float
    floor: float
    kept: int
    """Positions in the cache."""


@rule(
    "DK315",
    name="batched-differs-from-single",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check", "call"),
    needs=(),
    uses=(PaddingReaction, CachedGeneration),
    consequence_of=("DK326", "DK303", "DK309", "DK305"),
)
def judge(padding: PaddingReaction | None, cache: CachedGeneration | None, context: Context) -> Iterator[Finding]:
    alone = padding.alone if padding is not None else None
    if alone is None and cache is None:
        raise NotExamined("There is neither a padded row that can be computed alone nor a key/value cache.")
    moved = max(alone.moved, alone.loss_moved) if alone is not None else 0.0
    if padding is not None and alone is not None and moved > padding.floor:
        yield context.finding(
            f"A row computed without padding differs from the same row in the batch, by {moved:.2g} of its size.",
            input=padding.mask,
            evidence={
                "moved": alone.moved,
                "loss_moved": alone.loss_moved,
                "floor": padding.floor,
                "output": alone.output,
            },
            fix=f"Make positions, masks and pooling depend on `{padding.mask}`, not on the width of the batch.",
        )
    if cache is not None and cache.moved > cache.floor:
        yield context.finding(
            f"With a cache, the result for the last position differs by {cache.moved:.2g} of its size from that of one "
            "pass over the same text.",
            module=cache.module,
            evidence={"cache_moved": cache.moved, "floor": cache.floor, "positions_kept": cache.kept},
            fix="Continue positions and mask after the cached ones, and append new keys and values to the cache.",
        )
