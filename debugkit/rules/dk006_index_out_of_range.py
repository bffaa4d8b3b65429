"""A token id has no row in its embedding, or a label no class: a device-side assert on a GPU.

## What it finds
Ids of which the embedding has no row, labels beyond the classes of the logits, gathered and one-hot indices beyond
their dimension, negative ones included. They are compared before the lookup runs.

## Why it hurts
On the CPU it is an `IndexError` without the id. On a GPU it is `device-side assert triggered`, reported at some later
operation, after which every call in the process fails. Typical causes: tokens added to the tokenizer and the embedding
not resized, a sequence longer than the position table, labels padded with -1 where the loss ignores -100, labels that
count from 1.

## Evidence
The operation, the table's path and its rows, the lowest and the highest index, how many have no row, and the entry of
the batch, with its first samples, that holds them.

## Fix
Added tokens: `model.resize_token_embeddings(len(tokenizer))` before the optimizer is built. Positions: truncate, or
raise the maximum in the config. Padding in labels: the loss's `ignore_index`. Clamping the ids hides all of these.

## When it stays silent
Indices that fit; labels equal to the loss's `ignore_index`; targets given as probabilities.

## Cost
Free on the CPU; on a GPU it waits for the device at each lookup of the one observed step.

## Lesson
[Lab 02](../../lessons/shapes/02_token_out_of_range.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.index_ranges import IndexRange, IndexRanges
from debugkit.registry import Context, rule


@rule(
    "DK006",
    name="index-out-of-range",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="F",
    modes=("check",),
    needs=(IndexRanges,),
)
def judge(seen: IndexRanges, context: Context) -> Iterator[Finding]:
    for lookup in seen.lookups:
        if lookup.fits:
            continue
        worst = lookup.highest if lookup.highest >= lookup.rows else lookup.lowest
        table = f"`{lookup.parameter}`" if lookup.parameter else lookup.operation
        has = "classes" if _of_labels(lookup) else "rows" if lookup.parameter else "entries"
        source = f" in `{lookup.entry}`" if lookup.entry else ""
        yield context.finding(
            f"Index {worst}{source}, but {table} has {lookup.rows} {has}: 0 to {lookup.rows - 1}.",
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


def _of_labels(lookup: IndexRange) -> bool:
    return lookup.operation in ("cross_entropy", "nll_loss")


def _fix(lookup: IndexRange) -> str:
    if lookup.lowest < 0:
        if _of_labels(lookup):
            return f"Pad labels with {lookup.ignored}, which this loss ignores, or pass ignore_index={lookup.lowest}."
        return "Replace the negative indices before the lookup: they are padding or a failed search."
    if _of_labels(lookup):
        return "Give the head as many outputs as there are classes, and count the labels from 0."
    if lookup.parameter and "pos" in lookup.parameter.lower():
        return "Truncate to the length of the position table, or raise the maximum in the config."
    if lookup.parameter:
        return "Resize the embedding, before the optimizer is built: model.resize_token_embeddings(len(tokenizer))."
    return "Follow the indices to where they are made."
