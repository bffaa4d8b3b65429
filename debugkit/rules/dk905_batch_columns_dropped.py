"""A Hugging Face Trainer's `remove_unused_columns` drops a column that the model's loss needs.

## What it finds
Columns of the training data that the Trainer takes off each sample, because no argument of the model's `forward` has
their name, although the loss is another one with them, or cannot be computed without them.

## Why it hurts
`remove_unused_columns` is on by default, and it looks at the signature of `forward` alone. What `compute_loss` pops
from the batch, what `forward(**kwargs)` reads, what your collator makes images of: gone before the collator sees it.
Where the code says `inputs.get("weight")` nothing raises, and the weights are not applied. A line at level `info` names
the dropped columns; the default level hides it.

## Evidence
The columns that are dropped, those that the loss needs, and two samples' loss with and without them.

## Fix
`TrainingArguments(remove_unused_columns=False)`, and a collator that hands on what is needed. Or give `forward` an
argument of that name.

## When it stays silent
Columns that nothing reads (an `id`, the raw text beside its tokens); `remove_unused_columns=False`; a data set that is
a stream.

## Cost
Free where nothing is dropped. Otherwise forward passes on two samples: two, and one for each dropped column.

## Lesson
No lab of its own; `debugkit.integrations.transformers.check_trainer(trainer)` runs it.
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.dropped_columns import DroppedColumns
from debugkit.registry import Context, rule


@rule(
    "DK905",
    name="batch-columns-dropped",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="4F",
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
        f"The Trainer drops the column{'s' * plural} {', '.join(f'`{c}`' for c in columns)}, and the loss needs "
        f"{'them' if plural else 'it'}: {_told(first.without)} without, {_told(first.with_it)} with "
        f"{f'`{first.columns[0]}`' if plural else 'it'}.",
        evidence={
            "dropped": list(seen.dropped),
            "needed": columns,
            "loss_without": first.without,
            "loss_with": first.with_it,
            "samples": seen.samples,
            "relative_threshold": seen.floor,
        },
        fix="TrainingArguments(remove_unused_columns=False), or an argument of that name in the model's forward.",
    )


def _told(outcome: float | str) -> str:
    return f"it is {outcome:.4g}" if isinstance(outcome, float) else f"there is none ({outcome})"
