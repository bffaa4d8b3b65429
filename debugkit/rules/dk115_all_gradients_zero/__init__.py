"""Every gradient is exactly zero in each step since the start of the run, so nothing is learned.

## What it finds
A running loop in which the optimizers have gradients, and all of them are exactly 0 in each of the first eight steps or
more.

## Why it hurts
The weights do not change, except by weight decay, and the loss is a constant. If it is 0, it looks like a solved task.
Typical causes are a softmax over one class, targets that are all ignored, a margin that is already satisfied, a mask
that removes every token, and a product with a weight that is 0.

## Evidence
The number of steps, the threshold, 8, the first loss, and how many gradients were read.

## Fix
Print the loss and its inputs for one batch. Run `debugkit.check(model, batch, loss_fn, optimizer)`: DK105, DK107 and
DK307 name the place.

## When it stays silent
One gradient that is not 0, in any optimizer and any step; parameters without a gradient; a loss that becomes 0 in the
course of the training; a run of fewer than eight steps.

## Lesson
No lab of its own; [Lab 12](../../lessons/gradients/12_tower_never_moves.md) has a part without a gradient.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity
from debugkit.loop.losses import Losses
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, or_too_short, rule
from debugkit.rule_text import amount, counted


@observed_by(".measure:ZeroGradientsProbe")
@dataclass(frozen=True)
class ZeroGradients(PlainData):
    """The steps from the first one on in which every gradient was exactly 0, out of `steps` with a gradient.

    `gradients` is the number of gradients in the last of them.
    """

    steps: int
    zero_since_start: int
    gradients: int


_FEWEST = 8


@rule(
    "DK115",
    name="all-gradients-zero",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    modes=("watch",),
    needs=(ZeroGradients,),
    uses=(Losses,),
    consequence_of=("DK201", "DK208"),
)
def judge(seen: ZeroGradients, losses: Losses | None, context: Context) -> Iterator[Finding]:
    yield from or_too_short(_zero(seen, losses, context), seen.steps, _FEWEST)


def _zero(seen: ZeroGradients, losses: Losses | None, context: Context) -> Iterator[Finding]:
    if seen.zero_since_start < _FEWEST or seen.zero_since_start < seen.steps:
        return
    loss = losses.first[0].value if losses is not None and losses.first else None
    value = f", and the loss is {amount(loss)}" if loss is not None else ""
    what = counted(seen.gradients, "gradient")
    yield context.finding(
        f"All {what} have been exactly 0 in each of the {seen.steps} steps so far{value}.",
        evidence={
            "steps": seen.zero_since_start,
            "threshold": _FEWEST,
            "gradients": seen.gradients,
            "first_loss": loss,
        },
        fix="Print the loss and its inputs for one batch, and run `debugkit.check()` on it.",
    )
