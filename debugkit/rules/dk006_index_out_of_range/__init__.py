"""A token id has no row in its embedding, or a label no class: a device-side assert on a GPU.

## What it finds
Token ids without a row in the embedding, labels beyond the classes of the logits, and gather and one-hot indices beyond
their dimension. Negative indices count as well. `check()` compares indices with the size of the table before the lookup
runs. `watch()` compares those of a lookup that raised, where the CPU raises: the loop ends, and the report says which
index it was.

## Why it hurts
On the CPU it is an `IndexError` that does not name the id. On a GPU it is `device-side assert triggered`, reported at
some later operation, and every later CUDA call in the process fails. Typical causes:

- tokens added to the tokenizer while the embedding was not resized;
- a sequence longer than the position table;
- labels padded with -1 where the loss ignores -100;
- labels that count from 1.

## Evidence
The operation, the table's path and its number of rows, the lowest and the highest index, how many indices have no row,
and the batch entry that holds them, with its first affected samples.

## Fix
Added tokens: call `model.resize_token_embeddings(len(tokenizer))` before the optimizer is built. Positions: truncate
the sequence, or raise the maximum in the config. Padded labels: use the loss's `ignore_index`. Do not clamp the ids:
that hides all of these faults.

## When it stays silent
Indices that fit; labels equal to the loss's `ignore_index`; targets given as probabilities.

## Cost
On a GPU, each lookup in the observed step waits for the device.

## Lesson
[Lab 02](../../lessons/shapes/02_words_nobody_wrote.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, rule
from debugkit.rule_text import code, counted, entry_name


@dataclass(frozen=True)
class IndexRange(PlainData):
    """One lookup: an embedding, class labels, a gather. `lowest` and `highest` leave ignored labels out.

    `rows` is the size of the table, `beyond` the number of indices outside it, and `samples` the first few samples with
    such an index. `parameter` is the table's path if the table is a parameter. `entry` is the path of the tensor in the
    batch that holds these indices.
    """

    operation: str
    rows: int
    lowest: int
    highest: int
    beyond: int = 0
    samples: tuple[int, ...] = ()
    parameter: str | None = None
    module: str | None = None
    entry: str | None = None
    ignored: int | None = None
    at: SourceLine | None = None

    @property
    def fits(self) -> bool:
        """Whether the table has every index."""
        return self.lowest >= 0 and self.highest < self.rows


@observed_by(".measure:IndexRangesProbe")
@dataclass(frozen=True)
class IndexRanges(PlainData):
    """The lookups of one step, in order. Equal lookups whose indices fit are listed once."""

    lookups: tuple[IndexRange, ...]


@rule(
    "DK006",
    name="index-out-of-range",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check", "watch"),
    needs=(IndexRanges,),
)
def judge(seen: IndexRanges, context: Context) -> Iterator[Finding]:
    for lookup in seen.lookups:
        if lookup.fits:
            continue
        worst = lookup.highest if lookup.highest >= lookup.rows else lookup.lowest
        table = code(lookup.parameter or lookup.operation)
        source = f" in {entry_name(lookup.entry)}" if lookup.entry else ""
        yield context.finding(
            f"Index {worst}{source} is out of range: {table} has {_size(lookup)}.",
            module=lookup.parameter.rpartition(".")[0] if lookup.parameter else lookup.module,
            parameter=lookup.parameter,
            at=lookup.at,
            evidence={
                "operation": lookup.operation,
                "rows": lookup.rows,
                "lowest": lookup.lowest,
                "highest": lookup.highest,
                "beyond": lookup.beyond,
                "entry": lookup.entry,
                "samples": list(lookup.samples),
                "ignore_index": lookup.ignored,
            },
            fix=_fix(lookup),
        )


def _size(lookup: IndexRange) -> str:
    one, many = ("row", "rows") if lookup.parameter else ("entry", "entries")
    size = counted(lookup.rows, "class", "classes") if _of_labels(lookup) else counted(lookup.rows, one, many)
    return size + (f", 0 to {lookup.rows - 1:,}" if lookup.rows > 1 else "")


def _of_labels(lookup: IndexRange) -> bool:
    return lookup.operation in ("cross_entropy", "nll_loss")


def _fix(lookup: IndexRange) -> str:
    if lookup.lowest < 0:
        if _of_labels(lookup):
            return f"Pad labels with {lookup.ignored}, which this loss ignores, or pass `ignore_index={lookup.lowest}`."
        return "Replace negative indices before the lookup. They are padding or the result of a failed search."
    if _of_labels(lookup):
        return "Give the head one output per class, and count the labels from 0."
    if lookup.parameter and "pos" in lookup.parameter.lower():
        return "Truncate the sequence to the length of the position table, or raise the maximum in the config."
    if lookup.parameter:
        return "Resize the embedding before the optimizer is built: `model.resize_token_embeddings(len(tokenizer))`."
    return "Find the code that computes these indices."
