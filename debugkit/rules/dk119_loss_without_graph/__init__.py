"""The tensor that backward starts from is new: no graph connects it with a parameter, so that nothing trains.

## What it finds
A running loop in which every `backward()` before a step starts from a tensor whose graph reaches no parameter of the
model or of an optimizer, and no parameter has a gradient when the optimizer steps, in three steps. One is enough if the
loop raises before the optimizer steps, as `clip_grad_value_` does without a gradient.

## Why it hurts
The loss is computed and logged correctly, `backward()` runs and the optimizer steps, but no weight changes. The usual
line is `loss = torch.tensor(loss.item(), requires_grad=True)`, which was written because `backward()` had raised
"element 0 of tensors does not require grad": the error is gone, and the training with it.

## Evidence
The number of steps, the threshold, 3, and the line of the first `backward()`.

## Fix
Call `backward()` on the loss that the model computed. If that loss has no `grad_fn`, run `debugkit.check()`: DK105
names the line that cuts the graph.

## When it stays silent
- Gradients that are computed in two parts: `backward()` on detached features, and then through the model (GradCache,
  split learning).
- Gradients that are written by hand, as with `torch.func.grad` or evolution strategies.
- Input optimization and adversarial examples before the training step.
- Graphs with a custom Function, which may hold parameters that the graph does not show (activation checkpointing).

## Lesson
[Lab 12](../../lessons/gradients/12_tower_never_moves.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, or_too_short, rule

_FEWEST = 3


@observed_by(".measure:LossesWithoutGraphProbe")
@dataclass(frozen=True)
class LossesWithoutGraph(PlainData):
    """The optimizer's steps, and those before which no `backward()` could reach a parameter and none had a gradient."""

    steps: int
    unreached: int
    at: SourceLine | None = None
    """The line of the first such `backward()`."""
    raised: bool = False
    """Whether the loop raised after such a `backward()`, before the optimizer stepped."""


@rule(
    "DK119",
    name="loss-without-graph",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("watch",),
    needs=(LossesWithoutGraph,),
)
def judge(seen: LossesWithoutGraph, context: Context) -> Iterator[Finding]:
    yield from or_too_short(_unreached(seen, context), seen.steps, _FEWEST)


def _unreached(seen: LossesWithoutGraph, context: Context) -> Iterator[Finding]:
    if seen.unreached < _FEWEST and not seen.raised:
        return
    times = "" if seen.unreached == 1 else f" in {seen.unreached} steps"
    yield context.finding(
        f"`backward()` started from a tensor that no graph connects with a parameter{times}, so no parameter has a "
        "gradient.",
        at=seen.at,
        evidence={"steps": seen.steps, "unreached": seen.unreached, "threshold": _FEWEST},
        fix="Call `backward()` on the loss that the model computed, not on a new tensor with its value.",
    )
