"""The softmax of an attention runs over a batch dimension, such as the heads, and not over the keys.

## What it finds
Attention whose softmax runs over a dimension that the product with the values takes for one of its batch dimensions:
`(q @ k.transpose(-2, -1)).softmax(1)` of scores `(B, heads, queries, keys)` runs over the heads, and `softmax(0)` over
the samples.

## Why it hurts
No error is raised, as a softmax over another dimension has the same shape. The weights of the keys do not sum to 1, so
nothing is chosen among them, and each head or sample gets less weight if others get more. Such a model trains, but to a
higher loss.

## Evidence
The dimension of the softmax and the shape of the scores. These are the result of a product of two activations, and the
weights are the first operand of the product with the values, which sums over the last dimension. Only shapes are read.

## Fix
Write `softmax(dim=-1)`, which runs over the keys.

## When it stays silent
- A softmax over one of the last two dimensions of the weights, as of slot attention and linear attention, or over a
  dimension of size 1; weights for a single query or key, as of routing in capsules.
- Results that are summed, indexed or combined by a layer over the dimension of the softmax, as of heads or experts that
  are mixed; weights that are divided again, or reshaped, before the product.

## Cost
Reads shapes. Under `watch()`, only the first three steps are observed.

## Lesson
No lab of its own; [Lab 07](../../lessons/shapes/07_lens_cap_on.md) is about another mistake that changes no shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, NotExamined, Severity, SourceLine
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, rule
from debugkit.rule_text import module_name


@dataclass(frozen=True)
class BatchSoftmax(PlainData):
    """A softmax over a dimension that the product with the values takes for one of its batch dimensions."""

    dim: int
    shape: tuple[int, ...]
    module: str | None
    at: SourceLine | None


@observed_by(".measure:SoftmaxDimsProbe")
@dataclass(frozen=True)
class AttentionSoftmaxes(PlainData):
    """How many products of attention weights with values were observed, and the softmaxes over a batch dimension."""

    read: int
    wrong: tuple[BatchSoftmax, ...]


@rule(
    "DK327",
    name="softmax-over-batch",
    severity=Severity.WARNING,
    certainty=Certainty.HEURISTIC,
    modes=("check", "watch"),
    needs=(AttentionSoftmaxes,),
)
def judge(seen: AttentionSoftmaxes, context: Context) -> Iterator[Finding]:
    if not seen.read:
        raise NotExamined("No attention with a softmax of its own was observed.")
    for softmax in seen.wrong:
        where = "the loop" if softmax.module is None else module_name(softmax.module)
        size, keys = softmax.shape[softmax.dim], softmax.shape[-1]
        yield context.finding(
            f"The softmax in {where} runs over dimension {softmax.dim} of the scores {softmax.shape}, which is a batch "
            f"dimension of the product with the values: its {size:,} entries compete, and the weights of the "
            f"{keys:,} keys do not sum to 1.",
            module=softmax.module,
            at=softmax.at,
            evidence={"dimension": softmax.dim, "shape": list(softmax.shape), "size": size, "keys": keys},
            fix="Write `softmax(dim=-1)`, which runs over the keys.",
        )
