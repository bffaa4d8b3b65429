"""Padding takes part in the loss: padded targets are learnt, or they dilute the mean.

## What it finds
A loss that moves when padding changes although the outputs for the content stay: labels in the padding that are not
ignored, a mean over all positions of a masked loss (mask, then mean), and actions after the end of an episode that
are learnt although `action_is_pad` marks them.

## Why it hurts
Padded targets teach the policy to stop moving, or to say token 0. A diluted mean makes the loss, and the gradient, of
short episodes two or three times too small, and the learning rate depend on the padding.

## Evidence
For tokens: the relative movement of the loss with other content in the padding and with the padding doubled, against
`floor`, and how many labels in the padding are not ignored. For action chunks: the movement of the loss with other
actions where `action_is_pad` is set; and, for a mean over all steps, the loss for two halves of the valid steps,
whose sum it is (`additivity` 0) instead of their weighted mean, with the line that takes the mean.

## Fix
Fill labels with -100 where there is padding. Divide by what counts: `(loss * valid).sum() / valid.sum()`, where
`valid` is first expanded to the loss's shape, action dimensions included.

## When it stays silent
Sums over steps without a mean, losses whose outputs move with the padding too (that is DK303), `(loss * valid).mean()
/ valid.mean()`, and batches without padding. An action loss that learns padded steps unmasked is a `warning`: some
policies repeat the last action on purpose.

## Cost
Three forward passes and two that all experiments share; shared with DK303 and DK315; four more where the batch has
padded action steps.

## Lesson
[Lab 42](../../lessons/actions/42_padded_steps.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, NotExamined, Severity
from debugkit.observations.padded_actions import PaddedActions
from debugkit.observations.padding import PaddingReaction
from debugkit.registry import Context, rule

ADDITIVE = 1e-3
"""Two halves of the steps add up to the loss within this part of it, and their weighted mean misses it by ten times."""


@rule(
    "DK309",
    name="padded-targets-counted",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="5F",
    modes=("check",),
    needs=(),
    uses=(PaddingReaction, PaddedActions),
)
def judge(padding: PaddingReaction | None, actions: PaddedActions | None, context: Context) -> Iterator[Finding]:
    if padding is None and actions is None:
        raise NotExamined(
            "The batch has neither padded tokens with an attention_mask nor padded actions with an action_is_pad."
        )
    if padding is not None:
        yield from _tokens(padding, context)
    if actions is not None:
        yield from _chunks(actions, context)


def _tokens(seen: PaddingReaction, context: Context) -> Iterator[Finding]:
    movements = [movement for movement in (seen.content, seen.longer) if movement is not None]
    if any(movement.moved > seen.floor for movement in movements) or not seen.labels_aligned:
        return
    moved = max((movement.loss_moved for movement in movements), default=0.0)
    if moved <= seen.floor:
        return
    labelled = (
        f"{seen.counted_labels} labels in the padding are not ignored" if seen.counted_labels else "the mean counts it"
    )
    yield context.finding(
        f"The loss moves by {moved:.2g} of its size with the padding although the outputs stay: {labelled}.",
        evidence={
            "loss_moved_by_other_content": seen.content.loss_moved if seen.content else None,
            "loss_moved_by_more_padding": seen.longer.loss_moved if seen.longer else None,
            "floor": seen.floor,
            "counted_labels": seen.counted_labels,
            "padded_positions": seen.padded,
        },
        fix="Pad the labels with -100, which cross_entropy ignores."
        if seen.counted_labels
        else "Divide the summed loss by the number of positions with a target, not by all positions.",
    )


def _chunks(seen: PaddedActions, context: Context) -> Iterator[Finding]:
    evidence: dict[str, object] = {
        "padded_steps": seen.padded,
        "steps": seen.steps,
        "loss_moved_by_padded_targets": seen.target_moved,
        "floor": seen.floor,
    }
    if seen.target_moved > seen.floor:
        yield context.finding(
            f"Actions marked as padding are learnt: other values there move the loss by {seen.target_moved:.2g}.",
            evidence=evidence,
            fix=f"Leave steps with {seen.path} set out of the loss; check that it is read under that very name.",
            severity=Severity.WARNING,
        )
    elif seen.additivity <= ADDITIVE and seen.weighted > 10 * ADDITIVE and seen.mean_at is not None:
        evidence |= {"additivity": seen.additivity, "against_weighted_mean": seen.weighted, "threshold": ADDITIVE}
        yield context.finding(
            f"The mean counts padded action steps ({seen.padded} of {seen.steps}) as zeros: the loss is too small.",
            at=seen.mean_at,
            evidence=evidence,
            fix="Divide the sum by the number of valid elements: valid steps times action dimensions.",
        )
