"""A LightningModule's training_step returns None, or a loss that no gradient can be taken of.

## What it finds
With automatic optimization Lightning calls `backward()` on what `training_step` returns. None tells it to leave the
batch out. This rule fires where every batch so far was left out, and where what came back has no graph: `.detach()`,
`.item()`, a NumPy number, a loss computed under `no_grad`.

## Why it hurts
A forgotten `return loss` raises nothing. The loss is logged, the progress bar moves, `fast_dev_run` is green and no
weight ever changes. A detached loss does raise, but in `backward()`, deep in the framework: "element 0 of tensors does
not require grad", without a word about which module returned it.

## Evidence
How many calls of `training_step` were seen, how many returned nothing and how many a detached loss, and the line where
it is defined.

## Fix
`return loss`, or `return {"loss": loss, …}`, with the loss that was computed. Log with `self.log("loss", loss)`, which
detaches for itself.

## When it stays silent
`automatic_optimization = False`, where the return value is not used; a step that skips a batch now and then; calls
under `no_grad`. Under `watch()`, three calls without any loss are waited for, or the end of the loop.

## Cost
Under `watch()`: free. Under `check()`: the observed step; pass `loss_fn=lambda module, batch:
module.training_step(batch, 0)`.

## Lesson
No lab of its own; [Lab 91](../../lessons/frameworks/91_lightning_stray_tensor.md) is about the same hidden loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.step_returns import StepReturns
from debugkit.registry import Context, rule

_CALLS = 3


@rule(
    "DK906",
    name="step-returns-no-loss",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="F",
    modes=("check", "watch"),
    needs=(StepReturns,),
)
def judge(seen: StepReturns, context: Context) -> Iterator[Finding]:
    evidence = {"calls": seen.calls, "returned_nothing": seen.nothing, "detached": seen.detached, "threshold": _CALLS}
    if seen.detached:
        yield context.finding(
            f"training_step returned {seen.returned_as} that is detached from the graph, in {seen.detached} of "
            f"{seen.calls} calls: backward() has nothing to follow.",
            at=seen.at,
            evidence=evidence | {"threshold": 1},
            fix="Return the loss as it was computed, without .detach(), .item() or no_grad; self.log detaches for "
            "itself.",
        )
    elif seen.nothing == seen.calls and (seen.calls >= _CALLS or seen.ended or context.mode == "check"):
        few = seen.calls < _CALLS  # it may be a batch that is rightly left out
        times = f"all {seen.calls} calls" if seen.calls > 1 else "the only call"
        yield context.finding(
            f"training_step returned no loss in {times}: the loop leaves the batch out, and no weight changes.",
            at=seen.at,
            step=0 if context.mode == "watch" else None,  # from the first on
            evidence=evidence,
            fix="End training_step with `return loss`; return None only for a batch that is to be left out.",
            severity=Severity.WARNING if few else None,
            certainty=Certainty.HEURISTIC if few else None,
        )
