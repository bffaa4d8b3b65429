"""A position depends on later tokens, and is trained to predict them.

## What it finds
A next-token model whose outputs, at positions with a target, change when only later tokens are changed.

## Why it hurts
The answer is in the input. The training loss falls to almost nothing. At generation there is no later token yet, and
the model produces noise. Action tokens predicted by such a model look perfect offline.

## Evidence
The largest relative change at supervised positions before the first changed token, compared with the floor of DK303,
and the first module, in order of execution, whose values at those positions changed.

## Fix
Give that module a causal mask: `is_causal=True`, or a lower-triangular mask that allows j <= i, not j <= i + 1. Pad a
convolution over time on the left only.

## When it stays silent
The rule applies only if the labels are the token ids, or the next ones, and the loss compares an output with the next
token; or with `Declare(causal=True)`. Masked language models, denoisers and classifiers are not examined. Bidirectional
prefixes have no targets and are not compared. Later tokens of other samples do not count: in a mixture of experts with
a capacity, the tokens of a batch compete (DK305).

## Cost
Two more passes measure the floor; all rules that need it share them.

## Lesson
No lab of its own; [Lab 45](../../lessons/actions/45_too_good_to_be_true.md) has the same fault in time instead of text.
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.measurements.label_alignment import FutureTokens
from debugkit.rule import Context, rule
from debugkit.rule_text import counted


@rule(
    "DK304",
    name="causal-leak",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check", "call"),
    needs=(FutureTokens,),
)
def judge(seen: FutureTokens, context: Context) -> Iterator[Finding]:
    if seen.moved <= seen.floor:
        return
    yield context.finding(
        f"Changing later tokens changes earlier outputs by up to {seen.moved:.2g} of their size "
        f"({counted(seen.positions, 'position')} compared).",
        module=seen.module,
        evidence={"moved": seen.moved, "floor": seen.floor, "positions": seen.positions, "output": seen.output},
        fix="Give this module a causal mask: position i may only use positions j <= i.",
    )
