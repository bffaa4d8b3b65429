"""An attention mask is inverted: the model attends to the padding of each row and to none of its tokens.

## What it finds
An attention whose mask leaves exactly the padding visible. The padding is read from the token ids that were embedded:
padded rows end, or begin, with one id that occurs nowhere else in the batch. The mask is the one that the attention
receives, so it may be an entry of the batch or be made inside the model.

## Why it hurts
No error is raised. The model trains on the padding, so the loss falls to what can be predicted without the input, and
stays there. The two conventions of PyTorch are opposite, which makes the mistake easy: `key_padding_mask` and the
masks of `nn.Transformer` are True for what is *ignored*; a boolean `attn_mask` of `scaled_dot_product_attention` is
True for what *takes part*, as an `attention_mask` of `transformers` is 1 for the content.

## Evidence
How many keys the mask leaves visible, how many tokens and how much padding the rows have, and in how many calls of the
step. The visible keys are compared with the padding position by position, over all rows.
A mask with more keys than ids, as of a policy that attends to its images, too, is compared at each place where the ids
fit.

## Fix
Invert the mask, or pass the one that the function expects.

## When it stays silent
- Masks that leave any token of any row visible, and masks that hide some of the padding only.
- Batches in which fewer than two rows are padded, or all by the same amount.
- Padding that the ids do not show: its id is also a token, or the inputs are features.
- Masks that are added to the scores or applied with `where` in code of your own; `masked_fill` is read.

## Cost
Compares small boolean tensors, once a step. Under `watch()`, only the first three steps are observed.

## Lesson
No lab of its own; [Lab 33](../../lessons/data/33_lost_on_the_robot.md) is about padding in front of a text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, NotExamined, Severity, SourceLine
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, rule
from debugkit.rule_text import counted, module_name, sentence


@dataclass(frozen=True)
class InvertedMask(PlainData):
    """The first attention of a step that sees the padding only. `calls` counts all of them."""

    operation: str
    module: str | None
    at: SourceLine | None
    visible: int
    tokens: int
    padding: int
    calls: int
    others: int = 0
    """Keys of a row beside those of the ids, as of image tokens."""


@observed_by(".measure:MasksProbe")
@dataclass(frozen=True)
class AttentionMasks(PlainData):
    """How many masks were compared with the padding of embedded ids in the observed steps, and one that is inverted."""

    compared: int
    inverted: InvertedMask | None


@rule(
    "DK326",
    name="mask-hides-content",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check", "watch"),
    needs=(AttentionMasks,),
)
def judge(seen: AttentionMasks, context: Context) -> Iterator[Finding]:
    if not seen.compared:
        raise NotExamined("No attention received a mask for token ids of which some rows are padded.")
    one = seen.inverted
    if one is None:
        return
    where = module_name(one.module) if one.module else f"`{one.operation}`"
    seen_beside = f"{counted(one.others, 'other key')} and the padding" if one.others else "the padding only"
    yield context.finding(
        f"{sentence(where)} attends to {seen_beside}: its mask hides all {counted(one.tokens, 'token')} of the "
        f"batch and leaves the {counted(one.padding, 'padded position')} visible.",
        module=one.module,
        at=one.at,
        evidence={
            "operation": one.operation,
            "visible_keys": one.visible,
            "tokens": one.tokens,
            "padded_positions": one.padding,
            "calls": one.calls,
        },
        fix=_FIXES.get(one.operation, "Invert the mask: it must hide the padding."),
    )


_FIXES = {
    "multi_head_attention_forward": "Invert the mask: `key_padding_mask` is True for the keys that are ignored.",
    "scaled_dot_product_attention": "Invert the mask: a boolean `attn_mask` is True for the keys that take part.",
}
