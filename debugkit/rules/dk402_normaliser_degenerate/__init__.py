"""Normalising divides by zero or nearly zero, or uses the statistics of other data.

## What it finds
- A standard deviation or range that is zero, or a millionth of the widest dimension's.
- Statistics that are not finite.
- Normalised values that are far from the usual range: a median beyond 5, more than 2 % of the rows beyond 10, or
  almost no spread in every dimension. They are what a method such as `normalize()` returns, or what a line computes
  with the statistics: `(x - mean) / std` or `(x - min) / (max - min)`.

## Why it hurts
A joint that never moved in the data gives 0/0, or, with an epsilon, a value of a million for a hundredth of a degree.
Statistics of another robot, of another key of the batch, of degrees instead of radians, or of absolute instead of
relative actions produce targets that no loss can handle: -3200 in one reported run.

## Evidence
- The spread of each dimension.
- The change of the normalised value when the input moves by 0.01 from the location (0.01 / std), against 1000.
- Median, spread and share of rows beyond 10 of the normaliser's results in one pass, and the line that computes them
  if no method does.

The finding is `info` if a constant such as 1e-8 is added to the spread and the values of this batch stay in range.

Under `watch()`, what lines compute with the statistics in the first three steps, also inside of a method, is compared
with the usual range. The methods are not called, and a spread of zero is not judged by itself: a NaN that it makes is
DK201.

## Fix
Set the spread of a constant dimension to 1, or leave the dimension out. Compute the statistics on exactly the values
that are normalised, after any conversion to relative actions and any padding.

## When it stays silent
The normaliser guards constant dimensions, so that the normalised value changes moderately. Heavy tails below 2 % are
accepted. BatchNorm's running statistics, learnt parameters, and statistics that were not used in the pass are not
compared with data, and neither are normalisers that saw fewer than 16 rows. Where a line computes with the statistics,
also not compared are rows of zeros, which are padding; a mean of 0 with a standard deviation of 1; statistics that
follow the data in training (`running_mean`); distances to several centres, where one value is broadcast; and what
the model computed with its parameters, such as a prediction that is normalised for the loss. Under `watch()`, neither
are statistics that have changed by the eighth step, or by the end of a shorter run.

## Lesson
[Lab 21](../../lessons/numerics/21_new_wrist.md)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import amount, module_name, numbered, quoted


@dataclass(frozen=True, slots=True)
class NormaliserStatistics:
    """A location and a spread on one owner: mean and std, min and max, q01 and q99."""

    module: str
    owner: str
    """The owner's name: `action_statistics`, or the attribute that holds the object; `""` for the model itself."""
    names: tuple[str, str]
    spread: tuple[float, ...]
    """For each dimension: std, or max - min."""
    finite: bool
    reaction: tuple[float, ...] | None
    """The change of the normalised value when a dimension moves by 0.01 from its location; NaN or inf where
    normalising divides by zero. None if the owner has no method that normalises."""


@dataclass(frozen=True, slots=True)
class NormalisedValues:
    """The results of one normaliser in a pass, by dimension."""

    module: str
    owner: str
    rows: int
    median: tuple[float, ...]
    spread: tuple[float, ...]
    """Standard deviation."""
    extreme_share: tuple[float, ...]
    """Share of rows with an absolute value above 10."""
    largest: float
    names: tuple[str, str] | None = None
    """Of the statistics, where a line computes with them and no method does."""
    line: SourceLine | None = None


@measured_by(".measure:watch_the_normalisers", cost=1, requires=("batch",), in_loop=".in_loop:NormalisersProbe")
@dataclass(frozen=True, slots=True)
class Normalisers:
    """All normalisers of the model."""

    statistics: tuple[NormaliserStatistics, ...]
    values: tuple[NormalisedValues, ...]


DEGENERATE = 1e-6
"""Relative to the spread of the widest dimension."""
LARGEST_REACTION = 1e3
"""0.01 over a standard deviation of 1e-5: sensor noise becomes the largest signal of all."""
FAR_MEDIAN = 5.0
FAR_SHARE = 0.02
LEAST_SPREAD = 0.02
FEWEST_ROWS = 16


@rule(
    "DK402",
    name="normaliser-degenerate",
    severity=Severity.WARNING,
    certainty=Certainty.HEURISTIC,
    modes=("check", "watch"),
    needs=(Normalisers,),
)
def judge(seen: Normalisers, context: Context) -> Iterator[Finding]:
    degenerate: set[tuple[str, str, tuple[str, str] | None]] = set()
    for held in seen.statistics:
        wrong = degenerate_dimensions(held)
        if not held.finite or wrong:
            degenerate |= {(held.module, held.owner, None), (held.module, held.owner, held.names)}
            yield _about_statistics(held, wrong, _is_guarded(held, wrong, seen.values), context)
    for values in seen.values:
        misfit = misfitting_dimensions(values)
        if misfit and (values.module, values.owner, values.names) not in degenerate:
            yield _about_values(values, misfit, context)


def degenerate_dimensions(held: NormaliserStatistics) -> list[int]:
    """Dimensions without spread in which normalising gives NaN, infinity or a huge value, as far as it was tried."""
    if not held.finite:
        return []
    widest = max(abs(spread) for spread in held.spread)
    narrow = [index for index, spread in enumerate(held.spread) if abs(spread) <= DEGENERATE * widest]
    if held.reaction is None:
        return narrow
    return [index for index in narrow if not held.reaction[index] <= LARGEST_REACTION]


def misfitting_dimensions(values: NormalisedValues) -> list[int]:
    """Dimensions whose normalised values are outside the range that data of these statistics would have."""
    if values.rows < FEWEST_ROWS:
        return []
    if all(spread < LEAST_SPREAD for spread in values.spread):
        return list(range(len(values.spread))) if any(values.spread) else []
    columns = zip(values.median, values.extreme_share, strict=True)
    return [index for index, (median, share) in enumerate(columns) if abs(median) > FAR_MEDIAN or share > FAR_SHARE]


def _is_guarded(held: NormaliserStatistics, wrong: list[int], seen: tuple[NormalisedValues, ...]) -> bool:
    """Whether a constant added to the spread keeps these dimensions finite, and none of them leaves the usual range."""
    if held.reaction is None or not held.finite or not all(math.isfinite(held.reaction[index]) for index in wrong):
        return False
    own = [values for values in seen if (values.module, values.owner) == (held.module, held.owner)]
    own = [values for values in own if values.names in (None, held.names)]
    return not any(set(wrong) & set(misfitting_dimensions(values)) for values in own)


def _about_statistics(held: NormaliserStatistics, wrong: list[int], guarded: bool, context: Context) -> Finding:
    broken = not held.finite or any(
        held.reaction is not None and not math.isfinite(held.reaction[index]) for index in wrong
    )
    low, high = held.names
    if not held.finite:
        message = f"The statistics `{low}` and `{high}` of {module_name(held.owner)} are not finite."
    else:
        effect = ", so normalising gives NaN or Inf there" if broken else ""
        effect = (
            ". A constant is added, so only values that differ from the mean would become large" if guarded else effect
        )
        where = numbered("dimension", wrong)
        message = f"`{low}` and `{high}` of {module_name(held.owner)} have no spread in {where}{effect}."
    return context.finding(
        message,
        module=held.module,
        evidence={
            "dimensions": wrong,
            "spread": [held.spread[index] for index in wrong] or list(held.spread),
            "reaction_to_0.01": [held.reaction[index] for index in wrong] if held.reaction else None,
            "threshold": LARGEST_REACTION,
        },
        fix="Set the spread of a constant dimension to 1."
        if held.finite
        else "Load the statistics, or compute them from the data, before training.",
        severity=Severity.ERROR if broken else Severity.INFO if guarded else None,
        certainty=Certainty.PROOF if broken else None,
    )


def _about_values(values: NormalisedValues, misfit: list[int], context: Context) -> Finding:
    worst = max(misfit, key=lambda index: abs(values.median[index]) + values.spread[index])
    which = f"The statistics of {module_name(values.owner)}" if values.names is None else quoted(values.names)
    return context.finding(
        f"{which} do not fit the data: after normalising, dimension {worst} has "
        f"median {amount(values.median[worst])} and standard deviation {amount(values.spread[worst])}. The largest "
        f"value is {amount(values.largest)}.",
        module=values.module,
        at=values.line,
        evidence={
            "dimensions": misfit,
            "median": [values.median[index] for index in misfit],
            "std": [values.spread[index] for index in misfit],
            "share_beyond_10": [values.extreme_share[index] for index in misfit],
            "largest": values.largest,
            "rows": values.rows,
            "thresholds": [FAR_MEDIAN, FAR_SHARE, LEAST_SPREAD],
        },
        fix="Compute the statistics on the values that are normalised: same robot, same unit, same kind of actions."
        if values.names is None
        else "Use the statistics of the values that are normalised: same key, same robot, same unit, same kind of "
        "actions.",
        certainty=Certainty.STATISTICAL,
    )
