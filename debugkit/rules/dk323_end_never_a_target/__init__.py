"""Every text of the batch ends with the same token, and the loss never asks for it: generation does not stop.

## What it finds
A next-token loss in which the target behind the last one that counts would be the same token in every row, and no row
of the batch has this token as a target that counts.

## Why it hurts
At every position that counts, the end token is a wrong answer, so its probability is trained towards zero. The loss is
as small as with it, and every token before the end is correct. But a model that generates continues behind the end, up
to the limit of tokens: another digit in a number, another action, or a second answer.

The usual cause is `pad_token = eos_token` together with labels, or a mask, made from `ids != pad`: this ignores the
padding, and the end token with it.

## Evidence
The end token, how many rows end with it, how many targets count, how many of them are the end token, and how the end is
known to be part of the texts: the attention mask keeps it, or the longest row has exactly one, which padding to the
longest row would not leave.

## Fix
Make the mask from the lengths of the texts, or ignore only what comes behind the first end token. Or pad with another
token.

## When it stays silent
- A single row in which the end token counts. Rows without a common last token: truncated or packed texts, chunks.
- Rows whose last target is the same token, such as the end of a turn in front of a line break.
- Rows with equally many targets, which can end by counting.
- Losses of the same position (masked tokens), of classes, and of targets that are not among the ids of the batch.
- A token that a configuration or an embedding calls padding, unless a configuration also calls it the end.
- Where no mask keeps the token: token 0, rows that all have more than one of it, and rows of a multiple of 8 tokens,
  because all of this may be padding.

## Cost
One forward in eval mode.

## Lesson
[Lab 35](../../lessons/data/35_full_speed_along_y.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import entry_name

ROWS = 4
"""Fewer rows may have the same next token by chance."""
TARGETS = 16
Shown = Literal["mask", "longest row", ""]
"""How the token is known to be part of the texts and not padding."""


@dataclass(frozen=True, slots=True)
class TextEnds:
    """The targets of one next-token loss, and the token behind the last of each row."""

    path: str
    """Path of the ids in the batch."""
    rows: int
    targets: int
    """How many targets count."""
    end: int | None
    """The id behind the last target that counts, if it is the same in every row."""
    as_target: int
    """How many targets that count have this id, in all losses of these ids."""
    last_targets: int
    """How many different ids the last targets of the rows have."""
    lengths: int
    """How many different numbers of targets the rows have."""
    shown: Shown
    called_padding: bool
    """Whether a configuration or an embedding names the id as padding, and no configuration names it as the end."""
    at: SourceLine | None
    """The line of the loss."""


@measured_by(".measure:ends_of_the_texts", cost=1, requires=("batch", "loss"))
@dataclass(frozen=True, slots=True)
class EndsOfTexts:
    """One for each entry with ids that a next-token loss learns."""

    texts: tuple[TextEnds, ...]


@rule(
    "DK323",
    name="end-never-a-target",
    severity=Severity.WARNING,
    certainty=Certainty.HEURISTIC,
    modes=("check", "call"),
    needs=(EndsOfTexts,),
)
def judge(seen: EndsOfTexts, context: Context) -> Iterator[Finding]:
    for text in seen.texts:
        if text.end is None or text.as_target or text.rows < ROWS or text.targets < TARGETS:
            continue
        if text.last_targets < 2 or text.lengths < 2 or text.called_padding or not text.shown:
            continue
        yield context.finding(
            f"All {text.rows:,} rows of {entry_name(text.path)} go on with token {text.end} behind their last target, "
            f"and it is none of the {text.targets:,} targets that count: nothing teaches the model to stop there.",
            input=text.path,
            at=text.at,
            evidence={
                "token": text.end,
                "rows": text.rows,
                "targets": text.targets,
                "as_target": text.as_target,
                "last_targets": text.last_targets,
                "part_of_the_texts_by": text.shown,
            },
            fix="If this token ends a text, count it: make the mask of the labels from the lengths of the texts, not "
            "from `ids != pad`.",
        )
