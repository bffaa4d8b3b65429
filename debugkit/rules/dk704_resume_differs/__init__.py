"""A resumed run differs from an uninterrupted one: the state_dicts do not hold all state of a step.

## What it finds
A difference between two steps in a row, and two steps with a restart in between: one step, save `state_dict()` of the
model and of each optimizer, restore the initial state, load the state_dicts, one step. Random states are restored in
both cases. A parameter, buffer or loss that is not bit-identical is reported, together with the state that the first
step changed and that is in no state_dict.

## Why it hurts
The loss jumps at each restart. Or an annealed weight, an averaged copy or the model's memory of earlier frames starts
from the beginning, without an error. On a cluster that preempts jobs, this happens many times in a run.

## Evidence
The number of tensors that were compared, the number that differ (the threshold is 0), whether the loss already differs,
and the unsaved state.

## Fix
Keep state in buffers, or in `get_extra_state`; keep an optimizer's state in `self.state`. Save optimizer, scheduler,
sampler and random states together with the weights.

## When it stays silent
Buffers with `persistent=False` that are recomputed, tied weights, BatchNorm, momentum, and generators, which count as
random state. State with a row for each sample of the batch, such as the carried state of an LSTM: it belongs to the
samples that were read last. Parameters of a criterion, which has a state_dict of its own. Steps that are not repeatable
even without saving are not examined (see DK701). Schedulers and samplers belong to the loop and are not checked.

## Cost
These are three training steps, and two more if the runs differ.

## Lesson
[Lab 72](../../lessons/reproducibility/72_a_step_apart.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, NotExamined, Severity
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import counted, quoted, verb


@dataclass(frozen=True, slots=True)
class UnsavedState:
    """State that a training step changed and that is in no state_dict."""

    owner: str
    """The path of the module, or the class name of the optimizer."""
    name: str
    in_optimizer: bool


@measured_by(".measure:save_and_resume", cost=9, requires=("batch", "optimizer"))
@dataclass(frozen=True, slots=True)
class ResumedStep:
    """The second of two steps, compared with the second step after saving and loading in between."""

    compared: int
    """The number of parameters and buffers, plus the loss."""
    different: tuple[str, ...]
    loss_differs: bool
    unsaved: tuple[UnsavedState, ...]
    load_error: str | None = None
    repeatable: bool = True
    """Whether the two steps without saving give the same result each time; otherwise the rule cannot judge."""


@rule(
    "DK704",
    name="resume-differs",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check",),
    needs=(ResumedStep,),
)
def judge(seen: ResumedStep, context: Context) -> Iterator[Finding]:
    if not seen.repeatable:
        raise NotExamined("Two steps differ from run to run even without saving and loading: see DK701.")
    if seen.load_error is not None:
        yield context.finding(
            f"Loading the saved state of the model and its optimizers raised {seen.load_error.rstrip(':.')}.",
            evidence={"error": seen.load_error},
            fix="Make `load_state_dict()` accept what `state_dict()` returns after a step.",
        )
        return
    if not seen.different and not seen.loss_differs:
        return
    culprit = next(iter(seen.unsaved), None)
    unsaved = [f"{state.owner}.{state.name}".lstrip(".") for state in seen.unsaved]
    because = (
        f": {quoted(unsaved)} changed in a step but {verb(len(unsaved), 'is', 'are')} in no `state_dict`"
        if unsaved
        else ""
    )
    where = f"{len(seen.different)} of {counted(seen.compared, 'tensor')}" if seen.different else "the loss"
    yield context.finding(
        f"After saving and loading, a step has a different result in {where}{because}.",
        module=culprit.owner if culprit is not None and not culprit.in_optimizer else None,
        parameter=None if culprit is not None or not seen.different else seen.different[0],
        evidence={
            "different": len(seen.different),
            "compared": seen.compared,
            "first": seen.different[0] if seen.different else "loss",
            "loss_differs": seen.loss_differs,
            "unsaved": unsaved,
            "threshold": 0,
        },
        fix="Register the state as a buffer, or save it with `get_extra_state()`. Keep an optimizer's state in "
        "`self.state`.",
    )
