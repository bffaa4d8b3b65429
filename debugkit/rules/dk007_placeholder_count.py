"""The prompt keeps more or fewer places for image features than there are image features.

## What it finds
A merge of image (or audio) features into the token sequence where the placeholder tokens are not as many as the
features: `masked_scatter` with features left over, which torch accepts, and the exceptions of those models that count.

## Why it hurts
A tokenizer that truncates to a maximum length cuts placeholders, not pixels. `masked_scatter` then fills the places
that are left and drops the rest of the features without a word: the first samples of a batch get their own image, the
next ones the remainder of somebody else's. Where the model counts, the run stops at the first long instruction.

## Evidence
Places and features, the places in each sample, and the line of the merge.

## Fix
Truncate the text and never the placeholders: cut the instruction before the image tokens are put in front of it, and
assert `(ids == image_token_id).sum(1)` for each sample. Raising the maximum length moves the failure to a longer one.

## When it stays silent
Equal counts; features joined to the sequence by concatenation, which needs no places; one mask token for all places;
masked values of the same shape as the target.

## Cost
Free: it counts while the observed step runs.

## Lesson
[Lab 06](../../lessons/shapes/06_image_token_count.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.placeholders import Placeholders
from debugkit.observations.shapes import ShapeTrace
from debugkit.registry import Context, rule

_FIX = "Truncate the instruction and never the placeholders: each image needs all of its places."


@rule(
    "DK007",
    name="placeholder-count",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="1F",
    modes=("check",),
    needs=(Placeholders,),
    uses=(ShapeTrace,),
)
def judge(seen: Placeholders, trace: ShapeTrace | None, context: Context) -> Iterator[Finding]:
    wrong = [merge for merge in seen.merges if merge.places != merge.features]
    for merge in wrong:
        left = merge.features - merge.places
        what = f"{left} features are dropped" if left > 0 else f"{-left} places get nothing"
        yield context.finding(
            f"The sequences keep {merge.places} places for {merge.features} image features: {what}.",
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
            f"The model counted placeholders and features: {failure.message.partition(': ')[2].rstrip('.')}.",
            module=failure.module,
            at=failure.line,
            evidence={
                "message": failure.message,
                "token": seen.token,
                "places_per_sample": list(seen.in_ids) if seen.in_ids is not None else None,
            },
            fix=_FIX,
        )
