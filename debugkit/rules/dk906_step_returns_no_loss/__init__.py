"""A LightningModule's training_step returns None, or a loss without a graph.

## What it finds
With automatic optimization, Lightning calls `backward()` on the value that `training_step` returns, and skips the batch
if it is None. The rule fires if every batch so far was skipped, or if the returned loss has no graph: `.detach()`,
`.item()`, a NumPy number, a loss computed under `no_grad`.

## Why it hurts
A missing `return loss` raises nothing. The loss is logged, the progress bar moves, `fast_dev_run` passes, and no weight
ever changes. A detached loss does raise, but in `backward()`, deep in the framework: "element 0 of tensors does not
require grad", without the name of the module that returned it.

## Evidence
The number of calls of `training_step`, how many returned nothing and how many a detached loss, and the line of its
definition.

## Fix
`return loss`, or `return {"loss": loss, …}`, with the loss as it was computed. Log with `self.log("loss", loss)`, which
detaches it.

## When it stays silent
`automatic_optimization = False`, which does not use the return value; a step that skips some batches; calls under
`no_grad`. Under `watch()` the rule waits for three calls without a loss, or for the end of the loop.

## Cost
Under `check()`, in the observed step: pass `loss_fn=lambda module, batch: module.training_step(batch, 0)`.

## Lesson
No lab of its own; [Lab 91](../../lessons/frameworks/91_green_at_home.md) is about the same hidden loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, rule


@observed_by(".measure:StepReturnsProbe")
@dataclass(frozen=True)
class StepReturns(PlainData):
    """The run so far; calls with gradients disabled are not counted.

    `nothing` counts calls that returned None, or a mapping without a `loss`; `detached` counts losses without a graph,
    and `returned_as` is their type. `at` is the definition of training_step. `ended` is True after the loop, also if it
    raised.
    """

    calls: int
    nothing: int
    detached: int
    returned_as: str
    at: SourceLine | None
    ended: bool


_CALLS = 3


@rule(
    "DK906",
    name="step-returns-no-loss",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check", "watch"),
    needs=(StepReturns,),
)
def judge(seen: StepReturns, context: Context) -> Iterator[Finding]:
    evidence = {"calls": seen.calls, "returned_nothing": seen.nothing, "detached": seen.detached, "threshold": _CALLS}
    if seen.detached:
        yield context.finding(
            f"`training_step` returned {seen.returned_as} that is detached from the graph in "
            f"{_calls(seen.detached, seen.calls)}, so `backward()` cannot compute gradients.",
            at=seen.at,
            evidence=evidence | {"threshold": 1},
            fix="Return the loss as it was computed, without `detach()`, `item()` or `no_grad()`. `self.log()` "
            "detaches it by itself.",
        )
    elif seen.nothing == seen.calls and (seen.calls >= _CALLS or seen.ended or context.mode == "check"):
        few = seen.calls < _CALLS  # the batch may be skipped on purpose
        yield context.finding(
            f"`training_step` returned no loss in {_calls(seen.nothing, seen.calls)}: Lightning skips the batch, "
            "and no weight changes.",
            at=seen.at,
            step=0 if context.mode == "watch" else None,  # since the first step
            evidence=evidence,
            fix="End `training_step` with `return loss`. Return None only to skip a batch.",
            severity=Severity.WARNING if few else None,
            certainty=Certainty.HEURISTIC if few else None,
        )


def _calls(count: int, of: int) -> str:
    if count < of:
        return f"{count:,} of {of:,} calls"
    return f"all {of:,} calls" if of > 1 else "the only call"
