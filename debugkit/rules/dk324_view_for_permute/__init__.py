"""A `view` or `reshape` takes the place of a `permute`: the sizes are right, and the values of the axes are mixed.

## What it finds
A `view`, `reshape`, `flatten` or `unflatten` whose result has the sizes that a `permute` would give, and that counts
the values in their old order: `(B, C, L).view(B, L, C)`, images `(B, H, W, C).reshape(B, C, H, W)`,
`(B, C, H, W).view(B, H * W, C)`, heads `(B, heads, T, d).reshape(B, T, heads * d)`, the state `(layers, B, H)` of a
recurrent layer in `state.view(B, -1)`. A layer then reads the dimension as features.

## Why it hurts
All shapes fit, nothing raises and the loss falls. But what the next layer takes for the channels of one place are
values of several places, or values of several samples. Position, locality and pretrained weights mean nothing any more.

## Evidence
The two shapes, the dimensions that hold the axis before and should hold it after, its size, the layer that made the
axis, and the one that reads it. The axis is followed from the layer that made it. If no layer made it, as in a batch,
the sizes must be such that no split and merge in order leads from one shape to the other.

## Fix
Move the axes with `permute` or `transpose`, then merge them with `reshape`. The finding has the call.

## When it stays silent
- Merging whole dimensions and splitting one in order: heads, windows, patches, groups, `flatten`, time steps merged
  with samples.
- `permute` before the `reshape`, and a `reshape` that is the inverse of an earlier one.
- Equal sizes, which leave open which axis is which.
- A result that no layer with weights reads as features, such as a relative shift of attention scores.
- Operations that are not known to it, and values of `torch.compile`: the axis is lost there.

## Cost
Only shapes are read. Under `watch()`, only the first three steps are observed.

## Lesson
No lab of its own. [Lab 03](../../lessons/shapes/03_gripper_never_closes.md) is about shapes that fit by chance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import observed_by
from debugkit.rule import Context, rule
from debugkit.rule_text import code, counted, numbered


@dataclass(frozen=True, slots=True)
class CountedAxis:
    """One `view` after which a layer reads an axis at a place to which it was not moved."""

    operation: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    kind: str
    """`feature` or `batch`."""
    size: int
    sources: tuple[int, ...]
    """The dimensions of the input that hold the axis."""
    targets: tuple[int, ...]
    """The dimensions of the result that have its size."""
    maker: str
    """The module or function that made the axis; empty for one of the batch."""
    reader: str
    instead: str
    """The calls to write instead, `.transpose(1, 2)`; empty if they are not known."""
    at: SourceLine | None


@observed_by(".measure:CountedAxesProbe")
@dataclass(frozen=True, slots=True)
class CountedAxes:
    """Every such `view` of a step; each line once."""

    views: tuple[CountedAxis, ...]


@rule(
    "DK324",
    name="view-for-permute",
    severity=Severity.WARNING,
    certainty=Certainty.HEURISTIC,
    modes=("check", "watch"),
    needs=(CountedAxes,),
    consequence_of=("DK305",),
)
def judge(seen: CountedAxes, context: Context) -> Iterator[Finding]:
    for view in seen.views:
        axis = "samples" if view.kind == "batch" else "features"
        of = f" of {code(view.maker)}" if view.maker and view.kind != "batch" else ""
        yield context.finding(
            f"{code(view.operation)} from {view.before} to {view.after} moves no axis, but {code(view.reader)} reads "
            f"{numbered('dimension', view.targets)} as the {view.size:,} {axis}{of}, which are "
            f"{numbered('dimension', view.sources)} before it: the values of several axes are mixed.",
            at=view.at,
            evidence={
                "before": list(view.before),
                "after": list(view.after),
                "dimensions_before": list(view.sources),
                "dimensions_after": list(view.targets),
                "size": view.size,
                "made_by": view.maker,
                "read_by": view.reader,
            },
            fix=f"Write `x{view.instead}`." if view.instead else "Move the axes with `permute`, then `reshape`.",
        )
