"""Unnormalising does not undo normalising: what the policy learnt is not what the robot executes.

## What it finds
A pair of functions, `normalise` and `unnormalise`, after which a value of the batch is not what it was.

## Why it hurts
The training loss lives in normalised space and stays perfect. The action sent to the robot is scaled or shifted: the
arm stops short, drifts, or never closes the gripper. Statistics of another dataset, a forgotten mean, a standard
deviation where the other side uses a range, and an epsilon on one side only are the usual causes.

## Evidence
For each dimension, the largest error relative to the range of the values, against a few roundings of the type, and the
slope of what comes back over what went in: 0.5 is an arm that goes half the way.

## Fix
Write one of the two as the algebraic inverse of the other and take both from the same statistics object.

## When it stays silent
Errors of rounding; dimensions that never move, if they come back. Normalisers that clip values beyond the data are
tried only on values that occur in the batch. Pairs are found by name on every submodule and on what it holds; others
are declared with `Declare(normaliser=(normalise, unnormalise))`.

## Cost
Free: two small functions, no forward pass.

## Lesson
[Lab 41](../../lessons/actions/41_unnormalise.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.normalisers import NormaliserRoundTrips
from debugkit.registry import Context, rule


@rule(
    "DK401",
    name="normaliser-round-trip",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="F",
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
        yield context.finding(
            f"{trip.unnormalise} does not undo {trip.normalise}: dimension {worst} of {trip.tried_on} comes back "
            f"{trip.error[worst]:.2g} of its range away, with a gain of {trip.gain[worst]:.3g} where 1 is exact.",
            module=trip.module,
            at=trip.at,
            evidence={
                "dimensions": wrong,
                "error": [trip.error[index] for index in wrong],
                "gain": [trip.gain[index] for index in wrong],
                "tolerance": trip.tolerance,
                "tried_on": trip.tried_on,
            },
            fix=f"Make {trip.unnormalise} the inverse of {trip.normalise}: the same statistics, the same epsilon.",
        )
