"""The number of placeholder tokens in the prompt differs from the number of image features.

## What it finds
A merge of image (or audio) features into the token sequence with more or fewer placeholder tokens than features. This
covers `masked_scatter` with features left over, which torch accepts, and the exceptions of models that count both.

## Why it hurts
A tokenizer that truncates to a maximum length removes placeholders, not pixels. `masked_scatter` then fills the
remaining places and silently drops the other features. The first samples of a batch get their own image, the following
ones get the rest of another sample's image. If the model counts, the run stops at the first long instruction.

## Evidence
The number of places and of features, the places in each sample, and the line of the merge.

## Fix
Truncate the text and never the placeholders: shorten the instruction before the image tokens are prepended, and assert
`(ids == image_token_id).sum(1)` for each sample. A higher maximum length only moves the failure to a longer
instruction.

## When it stays silent
Equal counts; features that are concatenated to the sequence, which needs no placeholders; one mask token for all
places; masked values with the same shape as the target.

## Lesson
[Lab 06](../../lessons/shapes/06_short_orders_only.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.measurements.shapes import ShapeTrace
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, rule
from debugkit.rule_text import counted, verb


@dataclass(frozen=True)
class Merge(PlainData):
    """One merge of features (N, D) into the places that a mask marks in embeddings (B, L, D)."""

    operation: str
    places: int
    places_per_sample: tuple[int, ...]
    features: int
    module: str | None
    at: SourceLine | None


@observed_by(".measure:PlaceholdersProbe")
@dataclass(frozen=True)
class Placeholders(PlainData):
    """The merges of one step. `in_ids` counts the config's placeholder token in each sample; None if there is none."""

    merges: tuple[Merge, ...]
    token: str | None = None
    in_ids: tuple[int, ...] | None = None


_FIX = "Truncate the instruction, never the placeholders: each image needs all of its places."


@rule(
    "DK007",
    name="placeholder-count",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check",),
    needs=(Placeholders,),
    uses=(ShapeTrace,),
)
def judge(seen: Placeholders, trace: ShapeTrace | None, context: Context) -> Iterator[Finding]:
    wrong = [merge for merge in seen.merges if merge.places != merge.features]
    for merge in wrong:
        left = merge.features - merge.places
        lost = f"{counted(left, 'feature')} {verb(left, 'is', 'are')} dropped"
        unfilled = f"{counted(-left, 'placeholder')} {verb(-left, 'is', 'are')} not filled"
        placeholders, features = counted(merge.places, "placeholder"), counted(merge.features, "image feature")
        yield context.finding(
            f"The sequences have {placeholders} for {features}: {lost if left > 0 else unfilled}.",
            module=merge.module,
            at=merge.at,
            evidence={
                "places": merge.places,
                "features": merge.features,
                "places_per_sample": list(merge.places_per_sample),
                "operation": merge.operation,
            },
            fix=_FIX,
        )
    failure = trace.failure if trace else None
    if not wrong and failure is not None and failure.about == "placeholders":
        yield context.finding(
            f"The model reports a wrong number of placeholders: {failure.message.partition(': ')[2].rstrip('.')}.",
            module=failure.module,
            at=failure.line,
            evidence={
                "message": failure.message,
                "token": seen.token,
                "places_per_sample": list(seen.in_ids) if seen.in_ids is not None else None,
            },
            fix=_FIX,
        )
