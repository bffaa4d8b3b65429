"""Padding takes part in the loss: padded targets are learnt, or they dilute the mean.

## What it finds
A loss that changes with the padding although the outputs for the content do not: labels in the padding that are not
ignored, a mean over all positions of a masked loss (mask, then mean), and actions after the end of an episode that are
learnt although `action_is_pad` marks them. For any loss that is computed from an output with one row for each position:
a gradient at the padded positions.

## Why it hurts
Padded targets teach the policy to stop moving, or to predict token 0. A diluted mean makes the loss and the gradient of
short episodes two or three times too small, so the effective learning rate depends on the padding.

## Evidence
For tokens: the relative change of the loss with other content in the padding and with the padding doubled, compared
with `floor`, and how many labels in the padding are not ignored.

For action chunks: the change of the loss with other actions where `action_is_pad` is set. For a mean over all steps:
the losses of two halves of the valid steps add up to the loss (`additivity` 0), while their weighted mean does not
equal it; and the line that takes the mean.

For other sequences: at how many padded positions of the output, and at how many others, the loss has a gradient. In a
script under `debugkit run`, it is the gradient of the script's own loss. The padding is known by a mask, by an entry of
lengths, or by ids that end in the padding id. One more pass with a shorter sequence shows that the output has its
positions.

## Fix
Fill labels with -100 where there is padding. Divide by the number of valid elements: `(loss * valid).sum() /
valid.sum()`, with `valid` expanded to the shape of the loss first, action dimensions included.

## When it stays silent
Sums over steps without a mean, losses whose outputs change with the padding too (DK303), `(loss * valid).mean() /
valid.mean()`, and batches without padding. An action loss that learns padded steps without any mask is a `warning`,
because some policies repeat the last action on purpose. So is a gradient at padded positions.

## Cost
Shared with DK303 and DK315. The passes for padded actions run only if the batch has padded action steps, and those for
the gradient only if padding is known.

## Lesson
[Lab 42](../../lessons/actions/42_best_where_it_matters.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, NotExamined, Severity, SourceLine
from debugkit.measurements.padding import PaddingReaction
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import counted, entry_name, verb


@measured_by(".measure:change_padded_actions", cost=4, requires=("batch", "loss"))
@dataclass(frozen=True, slots=True)
class PaddedActions:
    """Relative changes of the loss, in eval mode with equal random draws."""

    path: str
    """Path of the (B, H) mask that is True where a step is padding."""
    padded: int
    steps: int
    floor: float
    target_moved: float
    """The change with other actions for a sample whose steps are all marked as padding; NaN for a batch of one."""
    additivity: float
    """|L(A) + L(B) - L(A and B)| over L(A and B), for two halves A and B of the valid steps."""
    weighted: float
    """The same for the mean of L(A) and L(B), weighted by their sizes: 0 for a mean over valid steps."""
    mean_at: SourceLine | None
    """The line that takes a mean over steps of something that is zero exactly where there is padding."""


@measured_by(".gradients:gradients_in_the_padding", cost=4, requires=("batch",))
@dataclass(frozen=True, slots=True)
class PaddedGradients:
    """How many positions of an output (B, L, D) receive a gradient from the loss."""

    mask: str
    """Path of the entry of the batch that shows the padding."""
    output: str
    padded: int
    reached: int
    """Padded positions with more than a thousandth of the gradient at a typical content position."""
    content: int
    content_reached: int


MOST = 0.5
"""The share of padded positions from which on the loss counts them, and not a few that other code reads."""
SOME = 0.1
"""The share of the other positions: many labels may be ignored, as those of a prompt."""
ADDITIVE = 1e-3
"""The tolerance within which the losses of two halves add up to the loss. Their weighted mean must miss it tenfold."""


@rule(
    "DK309",
    name="padded-targets-counted",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check", "call"),
    needs=(),
    uses=(PaddingReaction, PaddedActions, PaddedGradients),
)
def judge(
    padding: PaddingReaction | None,
    actions: PaddedActions | None,
    gradients: PaddedGradients | None,
    context: Context,
) -> Iterator[Finding]:
    if padding is None and actions is None and gradients is None:
        raise NotExamined(
            "The batch has no padding that is known by a mask (attention_mask, action_is_pad), by lengths or by ids."
        )
    found = [
        *(_tokens(padding, context) if padding is not None else ()),
        *(_chunks(actions, context) if actions is not None else ()),
    ]
    if not found and gradients is not None:
        found = list(_positions(gradients, context))
    yield from found


def _tokens(seen: PaddingReaction, context: Context) -> Iterator[Finding]:
    movements = [movement for movement in (seen.content, seen.longer) if movement is not None]
    if any(movement.moved > seen.floor for movement in movements) or not seen.labels_aligned:
        return
    if seen.mask_says == "nothing":  # the last of these ids may be the end of the text, which is learnt on purpose
        return
    moved = max((movement.loss_moved for movement in movements), default=0.0)
    if moved <= seen.floor:
        return
    count = seen.counted_labels
    labels = f"{counted(count, 'label')} in the padding {verb(count, 'is', 'are')} not ignored"
    why = labels if count else "the mean includes the padded positions"
    yield context.finding(
        f"The loss changes by {moved:.2g} of its size with the padding, although the outputs do not: {why}.",
        input=seen.mask,
        evidence={
            "loss_moved_by_other_content": seen.content.loss_moved if seen.content else None,
            "loss_moved_by_more_padding": seen.longer.loss_moved if seen.longer else None,
            "floor": seen.floor,
            "counted_labels": seen.counted_labels,
            "padded_positions": seen.padded,
        },
        fix="Pad the labels with -100, which `cross_entropy` ignores."
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
            "Actions that are marked as padding count in the loss: other values there change it by "
            f"{seen.target_moved:.2g} of its size.",
            input=seen.path,
            evidence=evidence,
            fix=f"Exclude the steps that {entry_name(seen.path)} marks from the loss, and check that the loss reads it "
            "under this name.",
            severity=Severity.WARNING,
        )
    elif seen.additivity <= ADDITIVE and seen.weighted > 10 * ADDITIVE and seen.mean_at is not None:
        evidence |= {"additivity": seen.additivity, "against_weighted_mean": seen.weighted, "threshold": ADDITIVE}
        yield context.finding(
            f"The mean includes the padded action steps as zeros ({seen.padded:,} of {seen.steps:,}), so the loss is "
            "too small.",
            at=seen.mean_at,
            input=seen.path,
            evidence=evidence,
            fix="Divide the sum by the number of valid elements: valid steps times action dimensions.",
        )


def _positions(seen: PaddedGradients, context: Context) -> Iterator[Finding]:
    if seen.reached < MOST * seen.padded or seen.content_reached < SOME * seen.content:
        return
    yield context.finding(
        f"The loss counts padding: the output receives a gradient at {seen.reached:,} of {seen.padded:,} padded "
        "positions.",
        input=seen.mask,
        evidence={
            "output": seen.output or None,
            "padded_positions": seen.padded,
            "padded_with_gradient": seen.reached,
            "content_positions": seen.content,
            "content_with_gradient": seen.content_reached,
        },
        fix="Exclude the padded positions from the loss: `error[valid].mean()`, or -100 as their label.",
        severity=Severity.WARNING,
    )
