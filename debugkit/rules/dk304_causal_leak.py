"""A position sees tokens that come after it, and is trained to predict them.

## What it finds
A next-token model whose outputs move when only later tokens are changed, at positions that have a target.

## Why it hurts
The answer is in the input. The training loss falls to nearly nothing; at generation, where there is no later token
yet, the model says noise. Action tokens read off an image by such a model look perfect offline.

## Evidence
The largest relative movement at supervised positions before the first changed token, against the floor of DK303, and
the first module, in order of execution, whose values there moved.

## Fix
Give that module a causal mask (`is_causal=True`, or a lower-triangular mask that allows j <= i, not j <= i + 1), and
let a convolution over time pad on the left only.

## When it stays silent
Only where the labels are the token ids, or the next ones, and the loss compares an output with the next token; or
with `Declare(causal=True)`. Masked-language models, denoisers and classifiers are not examined; bidirectional
prefixes have no targets and are not looked at.

## Cost
Three forward passes, and two that all experiments share.

## Lesson
No lab of its own; [Lab 45](../../lessons/actions/45_future_leak.md) has the same fault in time instead of text.
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.label_alignment import FutureTokens
from debugkit.registry import Context, rule


@rule(
    "DK304",
    name="causal-leak",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="5F",
    modes=("check",),
    needs=(FutureTokens,),
)
def judge(seen: FutureTokens, context: Context) -> Iterator[Finding]:
    if seen.moved <= seen.floor:
        return
    yield context.finding(
        f"Changing later tokens moves {seen.positions} outputs before them by up to {seen.moved:.2g} of their size.",
        module=seen.module,
        evidence={"moved": seen.moved, "floor": seen.floor, "positions": seen.positions, "output": seen.output},
        fix="Give this module a causal mask: position i may see j <= i only.",
    )
