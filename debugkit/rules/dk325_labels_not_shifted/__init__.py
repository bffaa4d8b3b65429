"""A causal model is trained to predict the token that it reads at the same position: the labels are not shifted.

## What it finds
A loss over token ids in which every target that counts is the id that the model looks up at the same position, while
the outputs there depend on this id and on earlier ones, and on no later one.

## Why it hurts
The model learns to copy its input. The training loss and the validation loss both fall to almost zero, which looks like
very good training. Generation repeats the last token.

The usual causes are `y = x` instead of the next window of the data, the same slice `tgt[:, :-1]` as decoder input and
as labels, and your own loss on the logits of a Hugging Face model: these models shift only in
`model(labels=…)`.

## Evidence
How many targets count, and how many of them differ from the next id. One id of each row is then replaced where it is
looked up. `own`, `before` and `behind` are the relative changes of the outputs that are scored against this id, an
earlier id and a later id; `noise` is the difference of two equal passes.

## Fix
Compare output t with token t + 1: `logits[:, :-1]` with `ids[:, 1:]`. Or read `ids[:, :-1]` and predict `ids[:, 1:]`.

## When it stays silent
- Outputs that depend on later ids: masked language models, autoencoders of whole texts, taggers.
- Outputs that do not depend on the id they are scored against: the model shifts its inputs or its labels itself.
- Outputs that depend on no other id, such as those of an autoencoder of single tokens.
- Fewer than 16 targets that differ from the next id, ids of which half or more equal the next one, and ids that repeat
  with a period.
- Denoisers and sampled codes: in training mode random numbers are drawn for each position, or the ids differ from the
  targets.
- Steps with another loss that learns the next ids, and frozen embeddings, as under a probe or LoRA.

A causal autoencoder that compresses each token on purpose looks the same: declare `Declare(causal=False)`. With
`Declare(causal=True)` the finding is an `error`.

## Cost
The first pass is shared with DK323. The others run only if the targets of a loss are ids that the model looks up. Three
more follow if the outputs depend on the ids they are scored against.

## Lesson
No lab of its own; [Lab 45](../../lessons/actions/45_too_good_to_be_true.md) has another loss that is too good.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, NotExamined, Severity, SourceLine
from debugkit.observation import measured_by
from debugkit.rule import Context, rule

CHANGES = 16
"""With fewer targets that differ from the next id, they may be those of the same position by chance."""
MUCH_LESS = 0.01
"""Changes that are smaller than this part of another change count as none."""
ABOVE_NOISE = 10
SMALLEST = 1e-6


@dataclass(frozen=True, slots=True)
class TargetsAtInput:
    """One loss whose targets are the ids that are looked up at the same position, and the reaction to other ids."""

    at: SourceLine | None
    """The line of the loss."""
    table: str | None
    """Path of the module that looks up the ids; None if it is no module of the model."""
    targets: int
    """How many targets count."""
    changes: int
    """How many of them differ from the next id."""
    corrupted: bool
    """Whether random numbers were drawn for each position, or the ids differ from the targets in training mode."""
    own: float
    """The smallest change of the outputs that are scored against a replaced id, in relation to all outputs."""
    before: float
    """The largest change of an output that is scored against an earlier id."""
    behind: float
    """The largest change of an output that is scored against a later id."""
    noise: float
    next_is_learnt: bool
    """Whether another loss learns the next ids."""


@measured_by(".measure:replace_the_own_token", cost=3, requires=("batch", "loss"))
@dataclass(frozen=True, slots=True)
class TargetsAtInputs:
    """All such losses of a step."""

    losses: tuple[TargetsAtInput, ...]


@rule(
    "DK325",
    name="labels-not-shifted",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    modes=("check", "call"),
    needs=(TargetsAtInputs,),
)
def judge(seen: TargetsAtInputs, context: Context) -> Iterator[Finding]:
    if context.declare.causal is False:
        raise NotExamined("The model is declared as not causal.")
    for loss in seen.losses:
        if loss.changes < CHANGES or loss.corrupted or loss.next_is_learnt or not _copies(loss):
            continue
        yield context.finding(
            f"All {loss.targets:,} targets of this loss are the token that the model reads at the same position: the "
            "labels are not shifted, so it learns to copy its input.",
            module=loss.table,
            at=loss.at,
            evidence={
                "targets": loss.targets,
                "differ_from_next": loss.changes,
                "own": loss.own,
                "before": loss.before,
                "behind": loss.behind,
                "noise": loss.noise,
            },
            fix="Predict the next token: compare `logits[:, :-1]` with `ids[:, 1:]`, or read `ids[:, :-1]`.",
            severity=Severity.ERROR if context.declare.causal else None,
        )


def _copies(loss: TargetsAtInput) -> bool:
    """Whether the outputs depend on the id they are scored against and on earlier ids, and on no later one."""
    threshold = max(ABOVE_NOISE * loss.noise, SMALLEST)
    if min(loss.own, loss.behind) <= threshold:
        return False
    return loss.before <= MUCH_LESS * loss.behind and loss.own > MUCH_LESS * loss.behind
