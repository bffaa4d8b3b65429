"""A `view` or `reshape` in place of a `permute`: the shape is right, and values of several axes are mixed.

## What it finds
A `view`, `reshape`, `flatten` or `unflatten` that gives the shape of a `permute` but leaves the values in their order,
if a layer or a loss then reads one dimension as the features:

- `x.view(B, L, C)` of `(B, C, L)`, and `x.view(-1, C)` of `(B, C, H, W)` before a linear layer or `cross_entropy`;
- `images.reshape(B, C, H, W)` of `(B, H, W, C)` before a convolution, or `view(C, H, W)` of one image in a data set, a
  transform or a collate function that runs in the main process;
- `x.reshape(B, T, heads * d)` of the result of attention, `(B, heads, T, d)`;
- `state.view(B, -1)` of the state `(layers, B, H)` of a recurrent layer.

## Why it hurts
Nothing raises, and the loss falls. But the features that the next layer reads at one position are values of several
positions, channels or samples. Positions and pretrained weights have no meaning, and the loss stays higher.

## Evidence
Both shapes, the dimensions that hold the axis before the call and that should hold it after, the layer that made the
axis and the one that reads it. The axis is followed from the layer that made it. If no layer made it, as in a batch, it
counts only if the new sizes cannot be reached by splitting and merging dimensions in order.

## Fix
Move the axes with `permute` or `transpose` first, and merge them with `reshape` afterwards. The finding has the call.

## When it stays silent
- Dimensions that are merged whole or split alone: heads, windows, patches, groups, `flatten`, time steps in the batch
  dimension.
- A `permute` before the `reshape`, and a `reshape` that undoes an earlier one.
- Equal sizes, such as 8 heads and 8 tokens: the shape does not tell which dimension is which.
- Results that no layer with weights and no loss reads as features, such as the shifted scores of relative attention.
- Operations that the rule does not know: behind them, an axis has no meaning.

## Cost
Only shapes are read. Under `watch()`, only the first three steps are observed, and the batches that are made meanwhile.

## Lesson
No lab of its own. [Lab 07](../../lessons/shapes/07_lens_cap_on.md) has a `reshape` that mixes patches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import observed_by
from debugkit.rule import Context, rule
from debugkit.rule_text import module_name, numbered, sentence


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
    """The module or function that reads the result."""
    module: str | None
    """The reader, if it is a module."""
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
    consequence_of=("DK305", "DK322"),
)
def judge(seen: CountedAxes, context: Context) -> Iterator[Finding]:
    for view in seen.views:
        axis = "samples" if view.kind == "batch" else "features"
        of = f" of {module_name(view.maker)}" if view.maker and view.kind != "batch" else ""
        reader = sentence(module_name(view.reader))
        yield context.finding(
            f"`{view.operation}` from {view.before} to {view.after} moves no axis. {reader} reads "
            f"{numbered('dimension', view.targets)} of the result as the {view.size:,} {axis}{of}, which are in "
            f"{numbered('dimension', view.sources)} of the input, so values of several axes are mixed.",
            module=view.module,
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
