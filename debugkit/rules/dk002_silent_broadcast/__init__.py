"""A loss compares every prediction with every target, because the two shapes broadcast.

## What it finds
A prediction and a target with different shapes in one loss. `(B, 1)` and `(B,)` broadcast to `(B, B)`, so each sample
is compared with the targets of all others. Loss functions and hand-written differences (`(a - b) ** 2`) are covered.

## Why it hurts
Nothing fails. The loss falls until the model predicts the mean of the targets, then stays at their variance. That looks
like a model that is too small or a learning rate that is too low. `F.mse_loss` at least warns; a subtraction does not.

## Evidence
The two shapes, the shape they broadcast to, the number of pairs that are compared, and the intended number of pairs.

## Fix
Give both the same shape before the comparison: `prediction.squeeze(-1)` if the last dimension is 1, or
`target[:, None]`. Flattening the difference afterwards is too late.

## When it stays silent
- Equal shapes, and shapes whose extra dimensions of size 1 add no pair (a batch of one).
- Scalars.
- Differences that do not end in a scalar with a gradient: relative positions, metrics.
- Differences that `torch.distributions` takes: it broadcasts the parameters of a distribution on purpose.
- Differences between two predictions or two constants, and statistics that are subtracted before the comparison.
- A constant with the shape of one sample, `(D,)` against `(B, D)` or `(D, D)` against `(B, D, D)`: a centre, which is
  neither of the batch nor computed in the step, or an identity matrix, which is made of numbers only.
- Operands with the same number of dimensions, if the code inserted the singleton dimension just before (pairwise
  distances).

## Cost
Under `watch()`, only the first three steps are observed.

## Lesson
[Lab 03](../../lessons/shapes/03_gripper_never_closes.md)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import observed_by
from debugkit.rule import Context, rule

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One comparison of a prediction with a target that went into a loss."""

    operation: str
    """torch's name of it: `mse_loss`, `sub`…"""
    first: Shape
    second: Shape
    at: SourceLine | None
    outer: bool = False
    """Whether the code inserted a singleton dimension just before (`x[:, None]`, `unsqueeze`, `keepdim=True`)."""

    @property
    def broadcast(self) -> Shape:
        """The shape that both broadcast to."""
        longest = max(len(self.first), len(self.second))
        padded = [(1,) * (longest - len(shape)) + shape for shape in (self.first, self.second)]
        return tuple(b if a == 1 else a for a, b in zip(*padded, strict=True))

    @property
    def pairs(self) -> int:
        """How many pairs of numbers are compared."""
        return math.prod(self.broadcast)

    @property
    def crossed(self) -> bool:
        """Whether both sides have equally many numbers and each is compared with all others: (B, 1) with (B,)."""
        same_count = math.prod(self.first) == math.prod(self.second)
        return same_count and len(self.first) != len(self.second) and self.pairs > math.prod(self.first)

    @property
    def repeated(self) -> bool:
        """Whether one side is repeated along a dimension of the other: (B, 1, D) with (B, T, D). Not for scalars."""
        smaller = min(math.prod(self.first), math.prod(self.second))
        return not self.crossed and smaller != 1 and self.pairs > smaller


@observed_by(".measure:LossOperandsProbe")
@dataclass(frozen=True, slots=True)
class LossOperands:
    """Every comparison of a step that ends in a scalar with a gradient, in order. Same line and shapes: listed once."""

    comparisons: tuple[Comparison, ...]


@rule(
    "DK002",
    name="silent-broadcast",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check", "watch"),
    needs=(LossOperands,),
)
def judge(loss: LossOperands, context: Context) -> Iterator[Finding]:
    for seen in loss.comparisons:
        intended = max(math.prod(seen.first), math.prod(seen.second))
        compared = f"`{seen.operation}` compares {_text(seen.first)} with {_text(seen.second)}"
        evidence = {
            "first": list(seen.first),
            "second": list(seen.second),
            "compared_as": list(seen.broadcast),
            "pairs": seen.pairs,
            "intended_pairs": intended,
        }
        if seen.crossed:
            pairs = f"{seen.pairs:,} pairs instead of {intended:,}"
            yield context.finding(
                f"{compared}, which broadcast to {_text(seen.broadcast)}: {pairs}.",
                at=seen.at,
                evidence=evidence,
                fix=_fix(seen),
            )
        elif seen.repeated and not seen.outer:
            yield context.finding(
                f"{compared}. Broadcasting repeats the smaller one.",
                at=seen.at,
                evidence=evidence,
                fix="Give both the same shape. If the repetition is intended, write it out with `expand()`.",
                severity=Severity.WARNING,
                certainty=Certainty.HEURISTIC,
            )


def _fix(seen: Comparison) -> str:
    longer = seen.first if len(seen.first) > len(seen.second) else seen.second
    which = "first" if longer is seen.first else "second"
    if longer[-1] == 1:
        return f"Drop the last dimension of the {which} operand before comparing: `x.squeeze(-1)`."
    return f"Reshape the {which} operand to the shape of the other before comparing."


def _text(shape: Shape) -> str:
    return f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"
