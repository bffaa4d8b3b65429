"""Linear layers follow each other without an activation, so together they are only one linear layer.

## What it finds
Two or more `nn.Linear`, or convolutions whose windows overlap, of which each receives the very tensor that the one
before it returned, while nothing else reads that tensor. Three or more are a `warning`, two are `info`.

## Why it hurts
A product of matrices is one matrix. The added layers cost memory and time and let the model express nothing new. The
loss stops where a linear model's loss stops, and more layers do not help. Usual causes: the activation was forgotten in
`forward`, a helper builds blocks with `activation=None`, or the result of `F.relu(x)` is not assigned.

## Evidence
The layers in order, the widths between them, and the number of layers that a `warning` needs.

## Fix
Put an activation between the layers, or replace them by one layer.

## When it stays silent
- A width in between that is smaller than both ends: LoRA, a bottleneck, a factorised projection. It limits the rank.
- Anything between the layers: an activation, a norm, dropout, a residual connection, a reshape such as the split into
  heads, a second reader of the tensor.
- Layers of different parts of the model, such as a tower's last projection and the projector behind it.
- A frozen layer among them, grouped convolutions, convolutions with different kernels, convolutions whose stride is
  their kernel, as a patch embedding's and a merge of patches, and two layers behind pooling.

## Cost
Hooks on every module, and one walk through the graph of the loss.

## Lesson
No lab of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, rule
from debugkit.rule_text import listed, module_name, sentence


@dataclass(frozen=True)
class LinearStack(PlainData):
    """Linear layers of which each reads exactly what the one before it returned.

    `widths` are the features of the first input and of each output. `kinds` holds the class and the kernel of each
    layer.
    """

    modules: tuple[str, ...]
    kinds: tuple[str, ...]
    widths: tuple[int, ...]
    all_train: bool
    after_pooling: bool
    at: SourceLine | None = None

    @property
    def limits_the_rank(self) -> bool:
        """Whether a width in between is smaller than both ends."""
        return min(self.widths[1:-1]) < min(self.widths[0], self.widths[-1])

    @property
    def is_of_one_part(self) -> bool:
        """Whether all layers have one parent, or parents that differ in their numbers only (`blocks.0`, `blocks.1`)."""
        return len({re.sub(r"\d+", "#", module.rpartition(".")[0]) for module in self.modules}) == 1


@observed_by(".measure:LinearStackProbe")
@dataclass(frozen=True)
class LinearStacks(PlainData):
    """Every stack of one forward pass; `layers` counts the linear layers that were called."""

    layers: int
    stacks: tuple[LinearStack, ...]


MANY = 3
"""A stack of this many layers or more is not an intended factorisation."""


@rule(
    "DK116",
    name="linear-stack",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    modes=("check",),
    needs=(LinearStacks,),
)
def judge(seen: LinearStacks, context: Context) -> Iterator[Finding]:
    for stack in seen.stacks:
        layers = len(stack.modules)
        if stack.limits_the_rank or not stack.is_of_one_part or not stack.all_train or len(set(stack.kinds)) > 1:
            continue
        if layers < MANY and stack.after_pooling:
            continue
        names = listed(map(module_name, stack.modules), most=4)
        yield context.finding(
            f"{sentence(names)} follow each other without an activation: together they are one linear layer from "
            f"{stack.widths[0]:,} to {stack.widths[-1]:,} features.",
            module=stack.modules[0],
            at=stack.at,
            evidence={
                "modules": list(stack.modules),
                "widths": list(stack.widths),
                "layers": layers,
                "warns_from": MANY,
            },
            fix="Put an activation between the layers, or replace them by one layer.",
            severity=None if layers >= MANY else Severity.INFO,
        )
