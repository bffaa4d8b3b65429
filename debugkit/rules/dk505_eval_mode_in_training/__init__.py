"""The model is trained in eval mode, so dropout and batch statistics are switched off.

## What it finds
The root module is in eval mode when an optimizer steps, together with modules that behave differently there (dropout,
BatchNorm, RReLU): either from some step on, for three steps or more, or from the start, for five steps or more. From
the start it may be intended, and is a `warning`.

## Why it hurts
Without dropout the model overfits. BatchNorm's running statistics are not updated, so training and evaluation drift
apart. Usually an evaluation function calls `model.eval()` and returns, or raises, before `model.train()`. Or the model
comes from `from_pretrained`, which returns it in eval mode.

## Evidence
The step since which the model is in eval mode, the number of affected modules, and the threshold in steps.

## Fix
Call `model.train()` at the start of each epoch. In evaluation, restore the previous mode in a `finally`.

## When it stays silent
- The root is in train mode, and only a frozen BatchNorm inside it is in eval mode.
- Dropout with p=0; models without modules that depend on the mode.
- Modules inside a part whose parameters are all frozen, such as a vision tower in eval mode.
- The model is back in train mode after fewer steps.

## Lesson
[Lab 52](../../lessons/loop/52_cannot_hold_still.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.loop.training_modes import TrainingModes
from debugkit.rule import Context, or_too_short, rule
from debugkit.rule_text import counted, verb

_STEPS_AFTER_FLIP = 3
_STEPS_FROM_START = 5


@rule(
    "DK505",
    name="eval-mode-in-training",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("watch",),
    needs=(TrainingModes,),
)
def judge(seen: TrainingModes, context: Context) -> Iterator[Finding]:
    yield from or_too_short(_in_eval_mode(seen, context), seen.steps, _STEPS_FROM_START)


def _in_eval_mode(seen: TrainingModes, context: Context) -> Iterator[Finding]:
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
    since = f"since step {now.step}" if flipped else "from the first step on"
    yield context.finding(
        f"The model is trained in eval mode {since}, for {counted(lasted, 'step')} so far: {now.sensitive_in_eval} of "
        f"{counted(now.sensitive, 'dropout or normalisation module')} "
        f"{verb(now.sensitive_in_eval, 'is', 'are')} in eval mode.",
        at=now.at,
        step=now.step,
        evidence={
            "since_step": now.step,
            "steps": lasted,
            "modules_in_eval": now.sensitive_in_eval,
            "modules": now.sensitive,
            "threshold": threshold,
        },
        fix="Call `model.train()` before training, and after each evaluation, even if the evaluation raises.",
        severity=None if flipped else Severity.WARNING,  # from the start it may be intended
    )
