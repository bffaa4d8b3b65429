"""Columns of the input reach the first layer with a scale of 10,000 or more, or with very different scales.

## What it finds
A tensor of the model's input that reaches a linear, recurrent or one-dimensional convolution layer as it was passed to
the model, and that has a column with a root mean square of at least 10,000, or two columns that differ by a factor of
at least a million. Examples are encoder ticks, prices and time stamps beside angles and fractions.

## Why it hurts
The gradient of a weight is proportional to its input. The columns with large values determine the output and the
gradient, a learning rate that fits them is too small for all others, and the small columns are not learned.

## Evidence
The largest and the smallest root mean square of a column, with both thresholds. The finding is a `warning` if the
gradient shows the effect: the first layer's is at least 10,000 times its weights, and the optimizer does not divide by
the gradient's size, as Adam does.

## Fix
Standardise each column with the mean and standard deviation of the training set, or put a normalisation layer first.

## When it stays silent
- An input that is changed before the layer: divided by a constant, standardised, concatenated, or the output of a
  normalisation layer or of another layer.
- A first layer that is followed by a normalisation layer.
- Token ids, one-hot columns, columns of zeros, images ([DK301](dk301_raw_pixels.md) and
  [DK302](dk302_pixel_statistics.md) examine them), and fewer than four rows.

## Cost
Under `watch()`, only the first three steps are observed.

## Lesson
No lab of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observation import observed_by
from debugkit.rule import Context, rule
from debugkit.rule_text import amount, entry_name, module_name


@dataclass(frozen=True, slots=True)
class RawInput:
    """An input of the model as its first layer received it."""

    module: str
    input: str
    """Its path in the arguments of the model."""
    rows: int
    columns: int
    largest: float
    """The largest root mean square of a column."""
    largest_column: int
    smallest: float
    """The smallest root mean square of a column that is not all 0."""
    smallest_column: int
    normalised_after: bool
    """Whether the next layer is a normalisation layer."""
    gradient_ratio: float
    """The root mean square of the gradient of the layer's weight, divided by that of the weight; 0 without one."""
    adaptive: bool
    """Whether the weight's optimizer divides by the size of the gradient, or is unknown."""


@observed_by(".measure:RawInputsProbe")
@dataclass(frozen=True, slots=True)
class RawInputs:
    """Every input that reaches a layer unchanged, in order of execution, each layer once."""

    inputs: tuple[RawInput, ...]


LARGE = 1e4
APART = 1e6
STEEP = 1e4
FEWEST = 4


@rule(
    "DK319",
    name="input-scale",
    severity=Severity.INFO,
    certainty=Certainty.HEURISTIC,
    modes=("check", "watch"),
    needs=(RawInputs,),
)
def judge(seen: RawInputs, context: Context) -> Iterator[Finding]:
    for each in seen.inputs:
        large, apart = each.largest >= LARGE, each.largest >= APART * each.smallest > 0
        if each.rows < FEWEST or each.normalised_after or not (large or apart):
            continue
        steep = each.gradient_ratio >= STEEP and not each.adaptive
        beside = f", and column {each.smallest_column} of {amount(each.smallest)}" if each.columns > 1 else ""
        yield context.finding(
            f"In {entry_name(each.input)}, which reaches {module_name(each.module)} unchanged, column "
            f"{each.largest_column} has a root mean square of {amount(each.largest)}{beside}.",
            module=each.module,
            input=each.input,
            evidence={
                "largest": each.largest,
                "smallest": each.smallest,
                "columns": each.columns,
                "rows": each.rows,
                "thresholds": [LARGE, APART],
                "gradient_to_weight": each.gradient_ratio,
                "steep": STEEP,
            },
            fix="Standardise each column with the statistics of the training set, or divide it by its unit.",
            severity=Severity.WARNING if steep else None,
            certainty=Certainty.STATISTICAL if steep else None,
        )
