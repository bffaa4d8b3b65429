"""TODO(author): say the fault in one sentence of 20 to 110 characters, as a person would meet it.

## What it finds
TODO(author): the condition, in one or two sentences.

## Why it hurts
TODO(author): what the user sees, and what it costs them. Link a documented case where there is one.

## Evidence
TODO(author): the measured numbers, and the threshold each is compared with.

## Fix
TODO(author): what to change, in the imperative.

## When it stays silent
TODO(author): the healthy code that looks most like the fault.

## Lesson
No lab of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observation import measured_by
from debugkit.rule import Context, rule


@measured_by(".measure:measure", cost=1, requires=("batch",))
@dataclass(frozen=True, slots=True)
class InputScale:
    """TODO(author): what was measured. Plain data only: no tensor, no module."""

    measured: float
    threshold: float


@rule(
    "DK319",
    name="input-scale",
    severity=Severity.WARNING,
    certainty=Certainty.STATISTICAL,
    modes=("check",),
    needs=(InputScale,),
)
def judge(seen: InputScale, context: Context) -> Iterator[Finding]:
    if seen.measured <= seen.threshold:
        return
    yield context.finding(
        f"TODO(author): what is wrong, with the number {seen.measured:.2g}.",
        module="",
        evidence={"measured": seen.measured, "threshold": seen.threshold},
        fix="TODO(author): what to change.",
    )
