"""Validation runs in training mode, so dropout is active and the validation data change BatchNorm's statistics.

## What it finds
Two or more passes in a row without gradients, between training steps, in which the model is in training mode and has
BatchNorm or dropout. If they changed BatchNorm's running statistics it is a `warning`; if only dropout was active it is
`info`.

## Why it hurts
BatchNorm normalises with the statistics of the validation batch, so the result depends on the batch size and on the
order of the samples. Its running statistics follow the validation data, and they are part of the checkpoint. Dropout
makes the metric worse, and different in each run. `torch.no_grad()` disables autograd; it does not change the mode.

## Evidence
The step, the number of passes and the threshold, the number of BatchNorm modules whose counter of batches advanced in
these passes, and the number of active dropout modules.

## Fix
Call `model.eval()` before validation and `model.train()` after it.

## When it stays silent
- Passes in eval mode, also with single modules set back to training mode (Monte-Carlo dropout).
- Several passes over the same input, or passes over one sample (a policy that acts).
- Statistics that are computed again: reset or loaded before the passes, or averaged with `momentum=None`.
- Passes before each training step, such as pseudo-labels. If such passes come before the first step, as when a policy
  collects data, the rule is not examined.
- Loops that call parts of the model and not the model itself; these are not examined.
- Other models, such as a teacher or an average of the weights; parts whose parameters are all frozen.

## Cost
Hooks on the model itself. It reads counters of changes, and nothing from the device.

## Lesson
No lab of its own; [Lab 52](../../lessons/loop/52_cannot_hold_still.md) has a part that ignores the mode.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, NotExamined, Severity, SourceLine
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, rule
from debugkit.rule_text import counted, module_name, verb


@dataclass(frozen=True)
class PassesInTrainingMode(PlainData):
    """Passes in a row without gradients: after which step, how many, and the first line that called the model.

    `updated` are the BatchNorm modules whose running statistics they changed; `dropouts` counts active ones.
    """

    step: int
    passes: int
    updated: tuple[str, ...]
    dropouts: int
    at: SourceLine | None = None


@observed_by(".measure:PassesProbe")
@dataclass(frozen=True)
class PassesWithoutGradients(PlainData):
    """The run so far.

    `calls` counts the calls of the model itself, `sensitive` the modules that depend on the mode. `before_first_step`:
    passes of this kind came before any training. `validations` counts those that follow several steps, and `first` is
    the first of them that is complete.
    """

    steps: int
    sensitive: int
    before_first_step: bool
    validations: int
    first: PassesInTrainingMode | None = None
    calls: int = 1


PASSES = 2


@rule(
    "DK510",
    name="validation-in-training-mode",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    modes=("watch",),
    needs=(PassesWithoutGradients,),
)
def judge(seen: PassesWithoutGradients, context: Context) -> Iterator[Finding]:
    if seen.sensitive and not seen.calls:
        raise NotExamined("The loop did not call the model itself, but its parts.")
    if seen.before_first_step:
        raise NotExamined("Passes without gradients came before the first step, as when a policy collects data.")
    passes = seen.first
    if passes is None or passes.passes < PASSES:
        return
    updated = len(passes.updated)
    what = f"{counted(passes.dropouts, 'dropout module')} {verb(passes.dropouts, 'was', 'were')} active"
    if updated:
        what = f"they changed the running statistics of {module_name(passes.updated[0])}"
        what += f" and of {counted(updated - 1, 'other module')}" if updated > 1 else ""
    yield context.finding(
        f"After step {passes.step}, {counted(passes.passes, 'pass', 'passes')} without gradients ran in training mode: "
        f"{what}.",
        module=passes.updated[0] if updated else "",
        at=passes.at,
        step=passes.step,
        evidence={
            "passes": passes.passes,
            "threshold": PASSES,
            "updated": updated,
            "dropouts": passes.dropouts,
            "validations": seen.validations,
        },
        fix="Call `model.eval()` before validation and `model.train()` after it: `no_grad()` does not change the mode.",
        severity=None if updated else Severity.INFO,
        certainty=None if updated else Certainty.HEURISTIC,
    )
