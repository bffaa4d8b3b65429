"""The model is trained in evaluation mode, so that dropout and batch statistics are switched off.

## What it finds
The model's root is in eval mode when an optimizer steps, and modules that act differently there (dropout, BatchNorm,
RReLU) are in eval mode with it: from some step on and never back, or from the start for five steps.

## Why it hurts
No dropout, so it overfits; BatchNorm's running statistics stop, so that training and evaluation drift apart. Usually an
evaluation function calls `model.eval()` and returns, or raises, before `model.train()`; or a model comes from
`from_pretrained`, which hands it over in eval mode.

## Evidence
The step from which the flags stood so, how many modules are concerned, and the threshold in steps.

## Fix
`model.train()` at the top of each epoch; in evaluation, put back what was there before, in a `finally`.

## When it stays silent
A root that trains with frozen BatchNorm in eval mode inside; dropout with p=0; modules inside a part whose parameters
are all frozen, such as a vision tower in eval mode; models without such modules; a mode that comes back.

## Cost
Under `watch()`: free.

## Lesson
[Lab 52](../../lessons/loop/52_evaluation_mode.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.training_mode import TrainingModes
from debugkit.registry import Context, rule

_STEPS_AFTER_FLIP = 3
_STEPS_FROM_START = 5


@rule(
    "DK505",
    name="eval-mode-in-training",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="F",
    modes=("watch",),
    needs=(TrainingModes,),
)
def judge(seen: TrainingModes, context: Context) -> Iterator[Finding]:
    if not seen.changes:
        return
    now = seen.changes[-1]
    if now.root_training or not now.sensitive_in_eval:
        return
    flipped = len(seen.changes) > 1
    threshold = _STEPS_AFTER_FLIP if flipped else _STEPS_FROM_START
    lasted = seen.last_step - now.step + 1
    if lasted < threshold:
        return
    since = f"since step {now.step}" if flipped else "from the first step"
    yield context.finding(
        f"The model was trained in eval mode {since}, {lasted} steps: {now.sensitive_in_eval} of {now.sensitive} "
        "dropout and normalisation modules were switched off.",
        at=now.at,
        step=now.step,
        evidence={
            "since_step": now.step,
            "steps": lasted,
            "modules_in_eval": now.sensitive_in_eval,
            "modules": now.sensitive,
            "threshold": threshold,
        },
        fix="Call model.train() before training, and again after each evaluation, also one that raises.",
        severity=None if flipped else Severity.WARNING,  # from the start on it may be meant
    )
