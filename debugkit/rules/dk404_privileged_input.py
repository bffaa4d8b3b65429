"""At inference the policy reads what the robot will not have: the target action, or the future.

## What it finds
An inference whose result moves when the target action of the batch, or a frame later than the decision, is changed.

## Why it hurts
Offline error is wonderful, because the answer is in the input; on the robot the entry is missing or is something
else. A VAE branch that runs whenever `"action"` is in the batch, and a state taken at index -1 of a window that
reaches into the future, are the known cases.

## Evidence
The largest relative movement of an output for each entry that was changed, against `floor`: ten times the difference
of two equal inferences, and at least 1e-5.

## Fix
Ask `self.training`, not what is in the batch; take the state at the decision's own index; drop targets from the batch
before inference.

## When it stays silent
Training may read targets: only inference is run (`model.select_action`, `predict_action`, `predict`…, or the one
declared). The target is found by name or declared; entries named `next.…` or `future…` are the future, others are
declared, whole (`future=("next_image",)`) or from a time step on (`future=("state[1:]",)`).

## Cost
Two inferences and one for each entry.

## Lesson
[Lab 45](../../lessons/actions/45_future_leak.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.privileged_inputs import PrivilegedInputs
from debugkit.registry import Context, rule


@rule(
    "DK404",
    name="privileged-input",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="3F",
    modes=("check",),
    needs=(PrivilegedInputs,),
)
def judge(seen: PrivilegedInputs, context: Context) -> Iterator[Finding]:
    for each in seen.inputs:
        if each.moved <= seen.floor:
            continue
        what = "the target action" if each.reason == "target" else "the future"
        yield context.finding(
            f"Inference reads {what}: with other values in {each.path}, its result moves by {each.moved:.2g}.",
            evidence={"path": each.path, "output": each.output, "moved": each.moved, "floor": seen.floor},
            fix="Run what reads the target in training only (self.training), and drop targets before inference."
            if each.reason == "target"
            else "Index the window at the decision's own time, and look at no later frame.",
        )
