"""The content or the amount of padding changes the outputs at positions without padding.

## What it finds
A padded batch whose outputs at content positions change if the padding gets other content (noise on embeddings and
features where the mask is 0), or if more padding of the same kind is added.

## Why it hurts
The result for a sample depends on the longest sample in its batch. At inference the robot has a batch of one without
padding, and gets another action than in training. Typical causes:

- a mask that is not passed on;
- positions counted with `arange` although the padding is in front of the text;
- a mean over all positions;
- reading the last position of a row that is padded on the right.

## Evidence
The largest relative change of an output at content positions, and of the loss, under both interventions. Both are
compared with `floor`: ten times the difference between two identical passes, eight roundings of the dtype in which the
model computes, and at least 1e-5. Healthy padding changes a float32 output by about 1.5e-7. `module` is the first
module whose values at content positions changed.

The padding mask is `attention_mask` or the declared one. It can also be an entry with pad, mask or valid in its name
that marks one end of each row, if another entry is constant at the marked positions. More padding is tried only with
the first two: a window of another model may have a fixed width. An entry belongs to the mask only if it is constant
at the padded positions.

What the mask marks is read from the other entries, too. An `attention_mask` is inverted if an input is constant at one
end of each row where the mask is 1, and varies where it is 0. A mask of ones leaves out the padding if the token ids
show it: two rows or more end (or begin) with two or more padding ids, one row has none, and the id is nowhere else.
The padding id is that of the model's configuration or embedding, or zero. Such padding is inferred, so the finding is a
`warning`.

## Fix
Pass the attention mask to every layer that mixes positions. Count positions with `mask.cumsum(-1) - 1`. Divide by
`mask.sum()` when positions are averaged.

## When it stays silent
Batches without padding, inputs padded to a fixed width under a mask of ones, changes at the padded positions
themselves, and a loss that counts padded targets while the outputs do not change (DK309). For models that draw noise
for every position, only the content of the padding is tried.

## Cost
Shared with DK309 and DK315. Two more passes measure the floor; all rules that need it share them.

## Lesson
[Lab 33](../../lessons/data/33_lost_on_the_robot.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.measurements.padding import PaddingReaction
from debugkit.rule import Context, rule
from debugkit.rule_text import counted


@rule(
    "DK303",
    name="padding-leak",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check", "call"),
    needs=(PaddingReaction,),
    consequence_of=("DK326",),
)
def judge(seen: PaddingReaction, context: Context) -> Iterator[Finding]:
    content, longer = seen.content, seen.longer
    by_content = content is not None and (
        content.moved > seen.floor or (_loss_decides(seen) and content.loss_moved > seen.floor)
    )
    by_length = longer is not None and (
        longer.moved > seen.floor or (_loss_decides(seen) and longer.loss_moved > seen.floor)
    )
    if not (by_content or by_length):
        return
    moved = max(
        max(movement.moved, movement.loss_moved)
        for movement, by in ((content, by_content), (longer, by_length))
        if movement and by
    )
    more = f"{counted(seen.added, 'more position')} of padding"
    change = "other content in the padding" if by_content else more
    module = content.module if content is not None and by_content else None
    yield context.finding(
        f"With {change}, the result for the content positions changes by {moved:.2g} of its size. It must not change."
        + _ABOUT_THE_MASK[seen.mask_says].format(mask=seen.mask),
        input=None if seen.mask_says == "content" and module else seen.mask,
        severity=Severity.WARNING if seen.mask_says == "nothing" else None,
        module=module or "",
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
        fix=f"Correct `{seen.mask}`: 1 for content, and 0 for padding."
        if seen.mask_says != "content"
        else f"Pass `{seen.mask}` to this module, and exclude masked positions from sums, means and softmaxes."
        if by_content
        else f"Count positions from `{seen.mask}` (`cumsum(-1) - 1`), and read the last position that has content.",
    )


_ABOUT_THE_MASK = {
    "content": "",
    "padding": " `{mask}` is 1 for the padding, and 0 for the content.",
    "nothing": " `{mask}` is 1 everywhere, although the token ids are padded.",
}


def _loss_decides(seen: PaddingReaction) -> bool:
    """Whether the loss alone is proof: there is no output to compare, and no labels in the padding explain the loss."""
    outputs_seen = any(movement is not None and movement.output is not None for movement in (seen.content, seen.longer))
    return not outputs_seen and not seen.labels_aligned
