"""A resumed run is not the run that was interrupted: the state_dicts do not hold all that a step needs.

## What it finds
Two steps in a row, against one step, `state_dict()` of the model and of each optimizer saved and loaded into what there
was at the start, and one step. Random states are put back in both. A parameter, a buffer or the loss that differs in a
bit is named, and with it what the first step changed and no state_dict holds.

## Why it hurts
The loss jumps at each restart, or an annealed weight, an averaged copy or a memory starts over, silently. On a cluster
that preempts jobs, that is many times a run.

## Evidence
How many tensors were compared, how many differ (threshold 0), whether the loss already differs, and the unsaved state.

## Fix
Keep state in buffers, or in `get_extra_state`; an optimizer's in `self.state`. Save optimizer, scheduler, sampler and
random states together with the weights.

## When it stays silent
Buffers with `persistent=False` that are computed anew, tied weights, BatchNorm, momentum, generators that are held
anywhere (they count as random state), and steps that do not repeat themselves without saving either (not examined: see
DK701). Schedulers and samplers are the loop's, and not seen here.

## Cost
Three training steps; two more on a hit.

## Lesson
[Lab 72](../../lessons/reproducibility/72_resume.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, NotExamined, Severity
from debugkit.observations.resumed_step import ResumedStep
from debugkit.registry import Context, rule


@rule(
    "DK704",
    name="resume-differs",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="3S",
    modes=("check",),
    needs=(ResumedStep,),
)
def judge(seen: ResumedStep, context: Context) -> Iterator[Finding]:
    if not seen.repeatable:
        raise NotExamined("Two steps differ from run to run without saving and loading too: see DK701.")
    if seen.load_error is not None:
        yield context.finding(
            f"The state_dicts of this model and its optimizers cannot be loaded again: {seen.load_error}.",
            evidence={"error": seen.load_error},
            fix="Make load_state_dict() accept what state_dict() returns after a step.",
        )
        return
    if not seen.different and not seen.loss_differs:
        return
    culprit = next(iter(seen.unsaved), None)
    lost = ", ".join(f"{state.owner}.{state.name}".lstrip(".") for state in seen.unsaved[:4])
    because = f": {lost} changed in a step and is in no state_dict" if lost else ""
    yield context.finding(
        f"A step after saving and loading differs from the step without, in {len(seen.different)} of {seen.compared} "
        f"tensors{because}.",
        module=culprit.owner if culprit is not None and not culprit.in_optimizer else None,
        parameter=None if culprit is not None or not seen.different else seen.different[0],
        evidence={
            "different": len(seen.different),
            "compared": seen.compared,
            "first": seen.different[0] if seen.different else "loss",
            "loss_differs": seen.loss_differs,
            "unsaved": lost,
            "threshold": 0,
        },
        fix="Register the state as a buffer, or save it with get_extra_state(); an optimizer's belongs in self.state.",
    )
