"""A Hugging Face Trainer's `remove_unused_columns` drops a column that the loss needs.

## What it finds
Columns of the training data that the Trainer removes from each sample, because the model's `forward` has no argument
with their name, although the loss changes with them or cannot be computed without them.

## Why it hurts
`remove_unused_columns` is on by default, and it uses only the signature of `forward`. Columns that `compute_loss` pops
from the batch, that `forward(**kwargs)` reads or that your collator turns into images are removed before the collator
runs. With `inputs.get("weight")` nothing raises, and the weights are not applied. A log line of level `info` names the
dropped columns, but the default level hides it.

## Evidence
The dropped columns, the columns that the loss needs, and the loss of two samples with and without them.

## Fix
Set `TrainingArguments(remove_unused_columns=False)`, and use a collator that passes on only what is needed. Or add an
argument with that name to `forward`.

## When it stays silent
Columns that nothing reads (an `id`, the raw text of the tokens); `remove_unused_columns=False`; a streamed data set.

## Cost
Free if nothing is dropped. Otherwise two passes on two samples, and one more for each dropped column.

## Lesson
[Lab 96](../../lessons/frameworks/96_never_learns_to_reach.md);
`debugkit.integrations.transformers.check_trainer(trainer)` runs the rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observation import measured_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, rule
from debugkit.rule_text import amounts_apart, quoted


@dataclass(frozen=True)
class NeededColumn(PlainData):
    """The effect of a column on the loss, with everything else equal.

    `without` and `with_it` are the loss, or the error that was raised instead.
    """

    columns: tuple[str, ...]
    without: float | str
    with_it: float | str


@measured_by(".measure:put_columns_back", cost=4, requires=("dataloader",))
@dataclass(frozen=True)
class DroppedColumns(PlainData):
    """`dropped`: columns that the samples have but the batches lack. `needed`: those of them that the loss needs.

    Two losses count as equal if their relative difference is below `floor`.
    """

    dropped: tuple[str, ...]
    needed: tuple[NeededColumn, ...]
    samples: int
    floor: float


@rule(
    "DK905",
    name="batch-columns-dropped",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("loader",),
    needs=(DroppedColumns,),
)
def judge(seen: DroppedColumns, context: Context) -> Iterator[Finding]:
    if not seen.needed:
        return
    columns = list(dict.fromkeys(column for needed in seen.needed for column in needed.columns))
    first = seen.needed[0]
    plural = len(columns) > 1
    yield context.finding(
        f"The Trainer drops the column{'s' * plural} {quoted(columns, None)}, but the loss needs "
        f"{'them' if plural else 'it'}: without {quoted(first.columns, None) if plural else 'it'}, {_outcome(first)}.",
        input=columns[0],
        evidence={
            "dropped": list(seen.dropped),
            "needed": columns,
            "loss_without": first.without,
            "loss_with": first.with_it,
            "samples": seen.samples,
            "relative_threshold": seen.floor,
        },
        fix="Set `TrainingArguments(remove_unused_columns=False)`, or add an argument with that name to the model's "
        "`forward()`.",
    )


def _outcome(needed: NeededColumn) -> str:
    without, with_it = needed.without, needed.with_it
    if isinstance(without, str) or isinstance(with_it, str):
        return f"the loss cannot be computed ({without})"
    shown = amounts_apart(without, with_it)
    return f"the loss is {shown[0]} instead of {shown[1]}"
