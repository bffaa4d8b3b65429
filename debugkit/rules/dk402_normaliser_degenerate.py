"""Normalising divides by almost nothing, or its statistics are those of other data.

## What it finds
A standard deviation or range of zero (or a millionth of the others') in some dimension; statistics that are not
finite; and values that come out of normalising far from where they should be: a median beyond 5, more than 2 % of
rows beyond 10, or hardly any spread in all dimensions.

## Why it hurts
A joint that never moved in the data gives 0/0, or, with an epsilon, a million for a hundredth of a degree. Statistics
of another robot, of degrees instead of radians, or of absolute instead of relative actions put targets where no loss
is reasonable: -3200 in one reported run.

## Evidence
The spread of each dimension; how far normalising moves when a value leaves its location by 0.01 (0.01 / std), against
1000; median, spread and share beyond 10 of what the normaliser gave in one pass.

## Fix
Give a dimension that never moves the spread 1, or leave it out; compute statistics on the very values that are
normalised, after they were made relative or padded.

## When it stays silent
Normalisers that guard such a dimension: normalising reacts moderately there. Heavy tails below 2 %, BatchNorm's
running statistics, learnt parameters, and statistics that nothing used in the pass are not compared with data. Fewer
than 16 rows say nothing.

## Cost
One forward pass.

## Lesson
[Lab 21](../../lessons/numerics/21_constant_joint.md)
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.normaliser_statistics import NormalisedValues, Normalisers, NormaliserStatistics
from debugkit.registry import Context, rule

DEGENERATE = 1e-6
"""Of the widest dimension's spread."""
LARGEST_REACTION = 1e3
"""0.01 over a standard deviation of 1e-5: sensor noise becomes the largest signal there is."""
FAR_MEDIAN = 5.0
FAR_SHARE = 0.02
LEAST_SPREAD = 0.02
FEWEST_ROWS = 16


@rule(
    "DK402",
    name="normaliser-degenerate",
    severity=Severity.WARNING,
    certainty=Certainty.HEURISTIC,
    cost="1F",
    modes=("check",),
    needs=(Normalisers,),
)
def judge(seen: Normalisers, context: Context) -> Iterator[Finding]:
    degenerate = set()
    for held in seen.statistics:
        wrong = degenerate_dimensions(held)
        if not held.finite or wrong:
            degenerate.add((held.module, held.owner))
            yield _about_statistics(held, wrong, context)
    for values in seen.values:
        misfit = misfitting_dimensions(values)
        if misfit and (values.module, values.owner) not in degenerate:
            yield _about_values(values, misfit, context)


def degenerate_dimensions(held: NormaliserStatistics) -> list[int]:
    """Dimensions without spread in which normalising, where it could be tried, breaks or explodes."""
    if not held.finite:
        return []
    widest = max(abs(spread) for spread in held.spread)
    narrow = [index for index, spread in enumerate(held.spread) if abs(spread) <= DEGENERATE * widest]
    if held.reaction is None:
        return narrow
    return [index for index in narrow if not held.reaction[index] <= LARGEST_REACTION]


def misfitting_dimensions(values: NormalisedValues) -> list[int]:
    """Dimensions whose normalised values are not where normalising puts its own data."""
    if values.rows < FEWEST_ROWS:
        return []
    if all(spread < LEAST_SPREAD for spread in values.spread):
        return list(range(len(values.spread))) if any(values.spread) else []
    columns = zip(values.median, values.extreme_share, strict=True)
    return [index for index, (median, share) in enumerate(columns) if abs(median) > FAR_MEDIAN or share > FAR_SHARE]


def _about_statistics(held: NormaliserStatistics, wrong: list[int], context: Context) -> Finding:
    broken = not held.finite or any(
        held.reaction is not None and not math.isfinite(held.reaction[index]) for index in wrong
    )
    what = "not finite" if not held.finite else f"without spread in dimension {', '.join(map(str, wrong))}"
    effect = "; normalising gives NaN or Inf there" if broken and held.finite else ""
    return context.finding(
        f"The statistics {' and '.join(held.names)} of {held.owner} are {what}{effect}.",
        module=held.module,
        evidence={
            "dimensions": wrong,
            "spread": [held.spread[index] for index in wrong] or list(held.spread),
            "reaction_to_0.01": [held.reaction[index] for index in wrong] if held.reaction else None,
            "threshold": LARGEST_REACTION,
        },
        fix="Set the spread of a dimension that never moves to 1, and load statistics before training.",
        severity=Severity.ERROR if broken else None,
        certainty=Certainty.PROOF if broken else None,
    )


def _about_values(values: NormalisedValues, misfit: list[int], context: Context) -> Finding:
    worst = max(misfit, key=lambda index: abs(values.median[index]) + values.spread[index])
    return context.finding(
        f"{values.owner} does not fit its data: dimension {worst} comes out with median {values.median[worst]:.3g} and "
        f"standard deviation {values.spread[worst]:.3g}, the largest value is {values.largest:.3g}.",
        module=values.module,
        evidence={
            "dimensions": misfit,
            "median": [values.median[index] for index in misfit],
            "std": [values.spread[index] for index in misfit],
            "share_beyond_10": [values.extreme_share[index] for index in misfit],
            "largest": values.largest,
            "rows": values.rows,
            "thresholds": [FAR_MEDIAN, FAR_SHARE, LEAST_SPREAD],
        },
        fix="Compute the statistics on the values that are normalised: same robot, same unit, same relative actions.",
        certainty=Certainty.STATISTICAL,
    )
