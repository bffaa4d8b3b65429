"""An attention mask is inverted: the model attends to the padding of each row and to none of its tokens.

## What it finds
An attention whose mask leaves exactly the padding visible. The padding is read from the token ids that were embedded:
padded rows end, or begin, with one id that occurs nowhere else in the batch. The mask is the one that the attention
receives, so it may be an entry of the batch or be made inside the model.

Attention whose softmax runs over a batch dimension, as a `warning`: `(q @ k.transpose(-2, -1)).softmax(1)` of scores
`(B, heads, queries, keys)` runs over the heads, and `softmax(0)` over the samples.

## Why it hurts
No error is raised. The model trains on the padding, so the loss falls to what can be predicted without the input, and
stays there. The two conventions of PyTorch are opposite, which makes the mistake easy: `key_padding_mask` and the
masks of `nn.Transformer` are True for what is *ignored*; a boolean `attn_mask` of `scaled_dot_product_attention` is
True for what *takes part*, as an `attention_mask` of `transformers` is 1 for the content.

A softmax over another dimension has the same shape, too. The weights of the keys do not sum to 1, so nothing is chosen
among them, and each head or sample gets less weight if others get more. Such a model trains, but to a higher loss.

## Evidence
How many keys the mask leaves visible, how many tokens and how much padding the rows have, and in how many calls of the
step. The visible keys are compared with the padding position by position, over all rows.
A mask with more keys than ids, as of a policy that attends to its images, too, is compared at each place where the ids
fit.

For a softmax: its dimension and the shape of the scores. These are the result of a product of two activations, and the
weights are the first operand of the product with the values, which sums over the last dimension. Only shapes are read.

## Fix
Invert the mask, or pass the one that the function expects. Write `softmax(dim=-1)`, which runs over the keys.

## When it stays silent
- Masks that leave any token of any row visible, and masks that hide some of the padding only.
- Batches in which fewer than two rows are padded, or all by the same amount.
- Padding that the ids do not show: its id is also a token, or the inputs are features.
- A softmax over one of the last two dimensions of the weights, as of slot attention and linear attention, or over a
  dimension of size 1; weights for a single query or key, as of routing in capsules.
- Results that are summed, indexed or combined by a layer over the dimension of the softmax, as of heads or experts that
  are mixed; weights that are divided again, or reshaped, before the product.
- Masks that are added to the scores or applied with `where` in code of your own; `masked_fill` is read.

## Cost
Compares small boolean tensors, once a step, and reads shapes. Under `watch()`, only the first three steps are observed.

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


@dataclass(frozen=True)
class BatchSoftmax(PlainData):
    """A softmax over a dimension that the product with the values takes for one of its batch dimensions."""

    dim: int
    shape: tuple[int, ...]
    module: str | None
    at: SourceLine | None


@observed_by(".softmax_dims:SoftmaxDimsProbe")
@dataclass(frozen=True)
class AttentionSoftmaxes(PlainData):
    """How many products of attention weights with values were observed, and the softmaxes over a batch dimension."""

    read: int
    wrong: tuple[BatchSoftmax, ...]


@rule(
    "DK326",
    name="mask-hides-content",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check", "watch"),
    needs=(AttentionMasks,),
    uses=(AttentionSoftmaxes,),
)
def judge(seen: AttentionMasks, softmaxes: AttentionSoftmaxes | None, context: Context) -> Iterator[Finding]:
    wrong = softmaxes.wrong if softmaxes is not None else ()
    for softmax in wrong:
        yield _over_a_batch_dimension(softmax, context)
    if not seen.compared:
        if wrong:
            return
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


def _over_a_batch_dimension(softmax: BatchSoftmax, context: Context) -> Finding:
    where = module_name(softmax.module) if softmax.module else "the loop"
    size, keys = softmax.shape[softmax.dim], softmax.shape[-1]
    return context.finding(
        f"The softmax in {where} runs over dimension {softmax.dim} of the scores {softmax.shape}, which is a batch "
        f"dimension of the product with the values: its {size:,} entries compete, and the weights of the {keys:,} keys "
        "do not sum to 1.",
        module=softmax.module,
        at=softmax.at,
        evidence={"dimension": softmax.dim, "shape": list(softmax.shape), "size": size, "keys": keys},
        fix="Write `softmax(dim=-1)`, which runs over the keys.",
        severity=Severity.WARNING,
        certainty=Certainty.HEURISTIC,
    )


_FIXES = {
    "multi_head_attention_forward": "Invert the mask: `key_padding_mask` is True for the keys that are ignored.",
    "scaled_dot_product_attention": "Invert the mask: a boolean `attn_mask` is True for the keys that take part.",
}
