"""A batch holds NaN or Inf before the model runs.

## What it finds
Values that are not finite in the batch, or in the first 32 batches of each loader. The finding names the entry, the
batch and the samples.

## Why it hurts
One NaN pixel or joint angle makes the loss NaN, then the gradients, and after one step every weight. The search then
starts in the model, where nothing is wrong.

## Evidence
The entry, how many of its values are affected, the first affected samples, and whether loss and outputs of that batch
are finite.

## Fix
Find the samples in the data set: a sensor that dropped out, a division by a standard deviation of 0, a mean over an
empty episode. Drop or repair them there. `nan_to_num` in the loop hides the next ones.

## When it stays silent
-inf in entries that are named a mask or a bias. If loss and outputs are finite in spite of a NaN or an Inf (an entry
that nothing uses, a label that is masked out), the finding is `info`.

## Cost
The batch and up to 32 batches of each loader are read. One forward pass if something is found.

## Lesson
No lab of its own; [Lab 21](../../lessons/numerics/21_new_wrist.md) creates such a value during normalisation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import counted, entry_name, numbered, verb


@dataclass(frozen=True, slots=True)
class NonfiniteInput:
    """One tensor of one batch."""

    role: str
    """`batch`, or the name of the loader."""
    batch: int
    """The number of the batch in that loader."""
    path: str
    kind: str
    """`NaN` or `Inf`."""
    count: int
    total: int
    rows: tuple[int, ...]
    """The first affected samples."""


@measured_by(".measure:read_the_inputs", cost=0)
@dataclass(frozen=True, slots=True)
class NonfiniteInputs:
    """All non-finite values that were found, except the -inf of masks."""

    found: tuple[NonfiniteInput, ...]
    result_finite: bool | None
    """Whether loss and outputs of the first such batch are finite. None if there is none, or if it could not be run."""
    batches: int
    """How many batches were read."""


@rule(
    "DK313",
    name="nonfinite-input",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check", "loader"),
    needs=(NonfiniteInputs,),
)
def judge(seen: NonfiniteInputs, context: Context) -> Iterator[Finding]:
    reported: set[tuple[str, str]] = set()
    for each in seen.found:
        if (each.path, each.kind) in reported:
            continue  # the given batch is often the first of the loader
        reported.add((each.path, each.kind))
        where = "the batch" if each.role == "batch" else f"batch {each.batch} of the {each.role} loader"
        harmless = seen.result_finite is True
        effect = ", but the loss and the outputs are finite" if harmless else ""
        values = f"{each.count:,} of {counted(each.total, 'value')} of {entry_name(each.path)} in {where}"
        yield context.finding(
            f"{values} {verb(each.count, 'is', 'are')} {each.kind}{effect}.",
            input=each.path,
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
            fix=_fix(each),
            severity=Severity.INFO if harmless else None,
        )


def _fix(found: NonfiniteInput) -> str:
    if not found.rows:
        return "Repair the value where the data set is created."
    return f"Repair or drop {numbered('sample', found.rows)} where the data set is created."
