"""Unnormalising does not invert normalising: the robot does not execute the action that the policy predicts.

## What it finds
A pair of functions, `normalise` and `unnormalise`, where `unnormalise(normalise(x))` differs from `x`.

## Why it hurts
The training loss is computed on normalised actions and looks perfect. The action sent to the robot is scaled or
shifted: the arm stops short, drifts, or never closes the gripper. The usual causes are statistics of another dataset,
a forgotten mean, a standard deviation on one side and a range on the other, and an epsilon on one side only.

## Evidence
For each dimension: the largest error relative to the range of the values, compared with a few rounding errors of the
dtype, and the gain, which is the slope of the result over the input. A gain of 0.5 means that the arm moves half as
far as it should.

## Fix
Write one function as the algebraic inverse of the other, and read the statistics of both from the same object.

## When it stays silent
The error is within rounding. Constant dimensions are checked too, and pass if the value is recovered. The pair is
tried on values of the batch, so a normaliser that clips values outside the data passes. Pairs are found by name on
every submodule and on the objects that it holds; declare others with
`Declare(normaliser=(normalise, unnormalise))`.

## Cost
Only the two functions are called, on one tensor of the batch.

## Lesson
[Lab 41](../../lessons/actions/41_hovers_beside.md)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import amounts_apart, entry_name, function_text, sentence

RANDOM_VALUES = "standard normal"


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """One pair of functions, tried on one tensor of the batch."""

    module: str | None
    """The module that has the pair; None for a declared pair."""
    normalise: str
    unnormalise: str
    at: SourceLine | None
    """The first line of `unnormalise`."""
    tried_on: str
    """Path of the tensor in the batch, or `RANDOM_VALUES`."""
    error: tuple[float, ...]
    """For each index of the last dimension: the largest |unnormalise(normalise(x)) − x| divided by the range of x."""
    tolerance: float
    gain: tuple[float, ...]
    """For each index of the last dimension: the slope of unnormalise(normalise(x)) over x. 1 for an exact inverse, NaN
    where x is constant."""


@measured_by(".measure:normalise_and_back", cost=0)
@dataclass(frozen=True, slots=True)
class NormaliserRoundTrips:
    """Every pair found."""

    pairs: tuple[RoundTrip, ...]


@rule(
    "DK401",
    name="normaliser-round-trip",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check",),
    needs=(NormaliserRoundTrips,),
    consequence_of=("DK402",),
)
def judge(seen: NormaliserRoundTrips, context: Context) -> Iterator[Finding]:
    for trip in seen.pairs:
        wrong = [index for index, error in enumerate(trip.error) if not error <= trip.tolerance]
        if not wrong:
            continue
        worst = max(wrong, key=lambda index: trip.error[index])
        there = function_text(trip.normalise, "normalises")
        back = function_text(trip.unnormalise, "unnormalises")
        tried_on = (
            "standard normal values" if trip.tried_on == RANDOM_VALUES else entry_name(trip.tried_on, "the batch")
        )
        yield context.finding(
            f"{sentence(back)} does not invert {there}: dimension {worst} of {tried_on} is off by up to "
            f"{trip.error[worst]:.2g} of its range{_gain(trip.gain[worst])}.",
            module=trip.module,
            at=trip.at,
            evidence={
                "dimensions": wrong,
                "error": [trip.error[index] for index in wrong],
                "gain": [trip.gain[index] for index in wrong],
                "tolerance": trip.tolerance,
                "tried_on": trip.tried_on,
            },
            fix=f"Make {back} the exact inverse of {there}: same statistics, same epsilon.",
        )


def _gain(gain: float) -> str:
    shown, exact = amounts_apart(gain, 1.0)
    return "" if math.isnan(gain) or shown == exact else f", with a gain of {shown} instead of 1"
