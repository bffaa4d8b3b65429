"""What stands in the padding, or how much of it there is, changes the outputs for the content.

## What it finds
A padded batch whose outputs at positions with content move when other content (noise on embeddings and features) is
put where the mask is 0, or when more padding of the same kind is added.

## Why it hurts
A sample's answer depends on the longest sample it happens to be batched with. At inference the robot has a batch of
one, without padding, and gets another action than it was trained for. The usual causes are a mask that is not passed
on, positions counted by `arange` although padding stands before the text, a mean over all positions, and reading the
last position of a row padded on the right.

## Evidence
The largest relative movement of an output at positions with content, and of the loss, under both changes, against
`floor`: ten times the difference of two identical passes, four roundings of the model's type, and at least 1e-5.
Healthy padding moves a float32 output by about 1.5e-7. `module` is the first one whose own values moved where there
is content.

## Fix
Pass the attention mask to every layer that mixes positions, count positions with `mask.cumsum(-1) - 1`, and divide by
`mask.sum()` where positions are averaged.

## When it stays silent
Batches without padding, movements at padded positions themselves, a loss that counts padded targets while the outputs
stay (that is DK309), and models that draw noise for every position, for which only the content is tried.

## Cost
Three forward passes and two that all experiments share; shared with DK309 and DK315.

## Lesson
[Lab 33](../../lessons/data/33_padding_side.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.padding import PaddingReaction
from debugkit.registry import Context, rule


@rule(
    "DK303",
    name="padding-leak",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="5F",
    modes=("check",),
    needs=(PaddingReaction,),
)
def judge(seen: PaddingReaction, context: Context) -> Iterator[Finding]:
    content, longer = seen.content, seen.longer
    by_content = content is not None and (
        content.moved > seen.floor or (_loss_speaks(seen) and content.loss_moved > seen.floor)
    )
    by_length = longer is not None and (
        longer.moved > seen.floor or (_loss_speaks(seen) and longer.loss_moved > seen.floor)
    )
    if not (by_content or by_length):
        return
    moved = max(
        max(movement.moved, movement.loss_moved)
        for movement, by in ((content, by_content), (longer, by_length))
        if movement and by
    )
    change = "other content in the padding" if by_content else f"{seen.added} more positions of padding"
    yield context.finding(
        f"The result for the content moves by {moved:.2g} of its size with {change}; it must not move at all.",
        module=(content.module if content is not None and by_content else None) or "",
        evidence={
            "floor": seen.floor,
            "padded_positions": seen.padded,
            "positions": seen.positions,
            "mask": seen.mask,
            "moved_by_other_content": content.moved if content else None,
            "loss_moved_by_other_content": content.loss_moved if content else None,
            "moved_by_more_padding": longer.moved if longer else None,
            "loss_moved_by_more_padding": longer.loss_moved if longer else None,
        },
        fix=f"Pass {seen.mask} on to this module, and leave masked positions out of sums, means, softmaxes."
        if by_content
        else f"Count positions from {seen.mask} (cumsum - 1) and read the last position that has content.",
    )


def _loss_speaks(seen: PaddingReaction) -> bool:
    """Whether the loss alone accuses the model: no output was seen, and no label sits in the padding to be counted."""
    outputs_seen = any(movement is not None and movement.output is not None for movement in (seen.content, seen.longer))
    return not outputs_seen and not seen.labels_aligned
