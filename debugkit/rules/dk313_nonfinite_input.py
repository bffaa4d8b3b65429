"""A batch holds NaN or Inf before the model has touched it.

## What it finds
Values that are not finite in the batch, or in the first 32 batches of each loader, with the entry, the batch and the
samples.

## Why it hurts
One NaN pixel or joint angle makes the loss NaN, the gradients NaN, and after one step every weight. The search then
starts in the model, where nothing is wrong.

## Evidence
Which entry, how many values of how many, the first samples that have them, and whether loss and outputs of that batch
are finite.

## Fix
Find the samples in the data set: a sensor that dropped out, a division by a standard deviation of 0, a mean over an
empty episode. Drop or repair them there; `nan_to_num` in the loop hides the next ones.

## When it stays silent
-inf in what is named a mask or a bias. Where loss and outputs are finite nevertheless (an entry nobody reads, a label
that is masked out) it is `info`.

## Cost
The batch is read, and 32 batches of each loader; one forward pass if something was found.

## Lesson
No lab of its own; [Lab 21](../../lessons/numerics/21_constant_joint.md) makes such a value by normalising.
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.nonfinite_inputs import NonfiniteInputs
from debugkit.registry import Context, rule


@rule(
    "DK313",
    name="nonfinite-input",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="1F",
    modes=("check", "loader"),
    needs=(NonfiniteInputs,),
)
def judge(seen: NonfiniteInputs, context: Context) -> Iterator[Finding]:
    told: set[tuple[str, str]] = set()
    for each in seen.found:
        if (each.path, each.kind) in told:
            continue  # the batch given is often the loader's first
        told.add((each.path, each.kind))
        where = "the batch" if each.role == "batch" else f"batch {each.batch} of the {each.role} loader"
        harmless = seen.result_finite is True
        effect = "; loss and outputs are finite all the same" if harmless else ""
        yield context.finding(
            f"{each.count} of {each.total} values of {each.path or 'the input'} in {where} are {each.kind}{effect}.",
            evidence={
                "path": each.path,
                "count": each.count,
                "total": each.total,
                "samples": list(each.rows),
                "batch": each.batch,
                "role": each.role,
                "result_finite": seen.result_finite,
                "batches_read": seen.batches,
            },
            fix=f"Repair or drop these samples ({', '.join(map(str, each.rows))}) where the data set is made.",
            severity=Severity.INFO if harmless else None,
        )
