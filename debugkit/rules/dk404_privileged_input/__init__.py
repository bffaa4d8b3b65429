"""At inference the policy reads what the robot will not have: the target action, or the future.

## What it finds
An inference whose result changes when the target action of the batch, or a frame later than the decision, changes.

## Why it hurts
The offline error is excellent, because the answer is in the input. On the robot that entry is missing or holds
something else. Two known cases: a VAE branch that runs whenever `"action"` is in the batch, and a state read at index
-1 of a window that extends into the future.

## Evidence
For each changed entry, the largest relative change of an output, against `floor`: ten times the difference between two
identical inferences, and at least 1e-5.

## Fix
Decide by `self.training`, not by which entries the batch has. Read the state at the index of the decision. Remove
targets from the batch before inference.

## When it stays silent
Training may read targets; only inference is examined (`model.select_action`, `predict_action`, `predict`…, or the
declared function). The target is found by name or declared. Entries named `next.…` or `future…` count as the future;
declare others, whole (`future=("next_image",)`) or from a time step on (`future=("state[1:]",)`).

## Cost
The number is for one changed entry; each further entry adds one inference.

## Lesson
[Lab 45](../../lessons/actions/45_too_good_to_be_true.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import entry_name


@dataclass(frozen=True, slots=True)
class PrivilegedInput:
    """One entry that was changed."""

    path: str
    reason: str
    """`target` or `future`."""
    output: str
    moved: float


@measured_by(".measure:change_what_the_robot_lacks", cost=3, requires=("batch",))
@dataclass(frozen=True, slots=True)
class PrivilegedInputs:
    """All changed entries; inference in eval mode, with the same random seed each time."""

    inputs: tuple[PrivilegedInput, ...]
    floor: float


@rule(
    "DK404",
    name="privileged-input",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check",),
    needs=(PrivilegedInputs,),
)
def judge(seen: PrivilegedInputs, context: Context) -> Iterator[Finding]:
    for each in seen.inputs:
        if each.moved <= seen.floor:
            continue
        what = "the target action" if each.reason == "target" else "the future"
        yield context.finding(
            f"Inference reads {what}: with other values in {entry_name(each.path)}, the result changes by "
            f"{each.moved:.2g} of its size.",
            input=each.path.partition("[")[0],
            evidence={"path": each.path, "output": each.output, "moved": each.moved, "floor": seen.floor},
            fix="Run the code that reads the target only in training (`self.training`), and remove targets from the "
            "batch before inference."
            if each.reason == "target"
            else "Index the window at the time of the decision, and read no later frame.",
        )
