"""Validation computes its loss on a training batch, because its loop uses the variables of the training loop.

## What it finds
Two or more passes of one validation (without gradients, or in eval mode without `backward()`), each after a new batch
of a loader that is not the training loader, in which the model gets the inputs of the last training step, or a batch of
the training loader, and never one of the other loader.

Also two or more evaluations in eval mode on the inputs of the last training step, where the call of the model names
what it reads after validation, as in `model(x[test])`. As `info`, two or more validations that read the training data
set itself through another loader whose name is one for validation, such as `val_loader`, or the `eval_dataset` of a
Trainer, if no other data are validated.

## Why it hurts
The number that is logged as the validation loss is the loss of a batch that the model has just been trained on. It
falls with the training loss, so overfitting, a wrong split and early stopping that comes too late cannot be seen. In
a script or a notebook, where both loops are in one scope, the names of the training loop still exist, and no error is
raised.

## Evidence
The step, the number of passes and the threshold, 2, how many batches of the other loader were read and not used, and
which training batch was used. The line is the call of the model, or the loop over the other loader if they are in
different functions.

## Fix
Give the model the variables of the validation loop. Put the validation into a function with its own names.

## When it stays silent
- One batch to overfit: the training batches do not differ, or both loaders give the same ones.
- A training metric: the inputs of the last step, or the training data set, under another name, such as `x` or
  `train_eval_loader`, or beside a validation of other data; data sets of one batch.
- A metric of the training batch after a step; several passes of one batch (Monte-Carlo dropout, self-ensembling).
- A validation that also reads training batches, if the model gets those of the other loader, too.
- Another model, such as a teacher or an average of the weights, that gets the other batches.
- Parts of the model that are called by themselves in the validation.
- Validation data that are a part of the training data: DK311 compares the loaders.
- Loops whose validation batches do not come from a DataLoader, and compiled models, are not examined.

## Cost
A hook on the model itself. Until eight validations were seen, it keeps a few hundred numbers of the inputs of the last
two training steps, on their device.

## Lesson
No lab of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from debugkit.finding import Certainty, Finding, NotExamined, Severity, SourceLine
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, rule
from debugkit.rule_text import counted

PASSES = 2
VALIDATIONS = 2
Source = Literal["last", "loader"]


@dataclass(frozen=True)
class ValidationOnTraining(PlainData):
    """The passes between two training steps, all of which got training inputs."""

    step: int
    passes: int
    turns: int
    """Passes that came after a new batch of another loader than the training loader."""
    unused: int
    """The batches of that loader."""
    source: Source
    """Whether the inputs were those of the last training step, or of a batch of the training loader."""
    others: bool
    """Whether a part of the model, or another model, was called by itself."""
    differ: bool
    """Whether the inputs of the last two training steps differ."""
    at: SourceLine | None


@dataclass(frozen=True)
class NamedValidation(PlainData):
    """Passes in eval mode between two training steps, on the inputs of the last one, under a name for validation."""

    step: int
    name: str
    others: bool
    differ: bool
    """As those of `ValidationOnTraining`."""
    at: SourceLine | None


@dataclass(frozen=True)
class SameData(PlainData):
    """A validation that reads the data set of the training loader itself, through a loader named for validation."""

    step: int
    name: str
    samples: int
    at: SourceLine | None


@observed_by(".measure:ValidationInputsProbe")
@dataclass(frozen=True)
class ValidationInputs(PlainData):
    """The first validations of a run.

    `validations` counts those with several passes in which batches of another loader than the training loader were
    read; `on_training` are those whose passes all got training inputs.
    """

    validations: int
    on_training: tuple[ValidationOnTraining, ...] = ()
    named: tuple[NamedValidation, ...] = ()
    same_data: tuple[SameData, ...] = ()
    other_data: int = 0
    """The validations that read another data set than that of the training loader."""


@rule(
    "DK321",
    name="validation-on-training-batch",
    severity=Severity.WARNING,
    certainty=Certainty.HEURISTIC,
    modes=("watch",),
    needs=(ValidationInputs,),
)
def judge(seen: ValidationInputs, context: Context) -> Iterator[Finding]:
    named = [one for one in seen.named if one.differ and not one.others]
    if len(named) >= VALIDATIONS:
        yield _on_the_last_batch(named, context)
        return
    if len(seen.same_data) >= VALIDATIONS and not seen.other_data:
        yield _on_the_same_data(seen.same_data, context)
        return
    if not seen.validations:
        raise NotExamined("No validation was seen that reads batches of a second torch DataLoader.")
    found = next((one for one in seen.on_training if one.turns >= PASSES and one.differ and not one.others), None)
    if found is None:
        return
    inputs = "the inputs of the last training step" if found.source == "last" else "a batch of the training loader"
    yield context.finding(
        f"After step {found.step}, {counted(found.passes, 'pass', 'passes')} of the validation got {inputs}, and none "
        f"of the {counted(found.unused, 'batch', 'batches')} that the validation read from another loader.",
        at=found.at,
        step=found.step,
        evidence={
            "passes": found.passes,
            "threshold": PASSES,
            "batches_read": found.unused,
            "inputs": "last training step" if found.source == "last" else "training loader",
        },
        fix="Compute the loss of the validation from the batch of its own loop, not from the variables of the training "
        "loop.",
    )


def _on_the_last_batch(named: Sequence[NamedValidation], context: Context) -> Finding:
    first = named[0]
    return context.finding(
        f"After step {first.step}, `{first.name}` selects the inputs of the last training step, and the model is "
        f"evaluated on them; {len(named) - 1} later {'time' if len(named) == 2 else 'times'} as well.",
        at=first.at,
        step=first.step,
        evidence={
            "name": first.name,
            "evaluations": len(named),
            "threshold": VALIDATIONS,
            "steps": [n.step for n in named],
        },
        fix="Evaluate the model on rows that it is not trained on.",
    )


def _on_the_same_data(seen: Sequence[SameData], context: Context) -> Finding:
    first = seen[0]
    return context.finding(
        f"`{first.name}` reads the data set of the training loader itself, all {first.samples:,} samples: the number "
        "is a training loss.",
        at=first.at,
        step=first.step,
        evidence={"name": first.name, "samples": first.samples, "validations": len(seen), "threshold": VALIDATIONS},
        fix="Give it data that are held out. If it is a test whether the model can fit the data, ignore this.",
        severity=Severity.INFO,
    )
