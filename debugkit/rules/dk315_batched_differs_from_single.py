"""A sample computed alone differs from the same sample in a padded batch, or from itself with a cache.

## What it finds
The most padded row of the batch, computed alone and without its padding, against the same row in the batch; and the
last position of a text computed in one pass, against the same position computed with the keys and values of the
earlier ones kept.

## Why it hurts
Training sees batches; the robot computes one sample, with a cache. Where they differ, every evaluation that batches
flatters or slanders the policy.

## Evidence
`moved` and `loss_moved` of the single row, and `cache_moved`, against the floor of DK303.

## Fix
Take positions from the mask, mask padding everywhere, read the last position with content, and with a cache pass the
positions that follow the kept ones.

## When it stays silent
Batches without padding and models without a cache are not examined. Models that draw noise per sample are compared on
nothing. Where padding itself is the reason (DK303, DK309), or another sample is (DK305), this is folded under it.

## Cost
Three forward passes and two that all experiments share; shared with DK303 and DK309; one more for the cache.

## Lesson
[Lab 33](../../lessons/data/33_padding_side.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, NotExamined, Severity
from debugkit.observations.cached_generation import CachedGeneration
from debugkit.observations.padding import PaddingReaction
from debugkit.registry import Context, rule


@rule(
    "DK315",
    name="batched-differs-from-single",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="5F",
    modes=("check",),
    needs=(),
    uses=(PaddingReaction, CachedGeneration),
    consequence_of=("DK303", "DK309", "DK305"),
)
def judge(padding: PaddingReaction | None, cache: CachedGeneration | None, context: Context) -> Iterator[Finding]:
    alone = padding.alone if padding is not None else None
    if alone is None and cache is None:
        raise NotExamined("There is neither a padded row that could be computed alone nor a key/value cache.")
    moved = max(alone.moved, alone.loss_moved) if alone is not None else 0.0
    if padding is not None and alone is not None and moved > padding.floor:
        yield context.finding(
            f"Without padding a row differs by {moved:.2g} from the same row in the batch.",
            evidence={
                "moved": alone.moved,
                "loss_moved": alone.loss_moved,
                "floor": padding.floor,
                "output": alone.output,
            },
            fix=f"Make positions, masks and pooling depend on {padding.mask}, not on the width of the batch.",
        )
    if cache is not None and cache.moved > cache.floor:
        yield context.finding(
            f"With the cache on, the last position differs by {cache.moved:.2g} from the same text in one pass.",
            module=cache.module,
            evidence={"cache_moved": cache.moved, "floor": cache.floor, "positions_kept": cache.kept},
            fix="Continue positions and mask after the kept ones, and append new keys and values behind them.",
        )
