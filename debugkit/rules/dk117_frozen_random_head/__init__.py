"""The layer that makes the prediction is frozen with the random weights it was created with.

## What it finds
A linear layer or convolution just before the loss whose parameters are all frozen and look as PyTorch draws them: the
weights are uniform within ±1/sqrt(fan_in). Other parameters train.

## Why it hurts
Every prediction passes a fixed random projection. The trained weights can only adapt to it, so the loss falls slowly
and stops early. Usual causes: the whole model was frozen after the new head was put in; an adapter library froze
everything but its adapters (`modules_to_save` was forgotten); a pattern that was meant for the body matches the head.

## Evidence
The number of weights, the largest one as a share of the bound, and the distance from the uniform distribution
(Kolmogorov–Smirnov, multiplied by the root of the sample's size) with its threshold, 1.63, the 1 % level.

## Fix
Set `requires_grad_(True)` for the head after everything else is frozen, and give its parameters to the optimizer.

## When it stays silent
- A frozen head with trained weights, with another initialisation (normal, orthogonal, zero), or tied to an embedding.
- A frozen network that is random as a whole: a discriminator in the step of its generator, a random target. The layer
  before the head is then frozen and as random, or an optimizer holds frozen parameters only.
- Fewer than 32 weights.
- The trainable parameters are declared: `Declare(trainable=…)`. DK113 compares them.

## Cost
Hooks on every layer, and one walk through the graph of the loss.

## Lesson
No lab of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, NotExamined, Severity
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, rule
from debugkit.rule_text import counted, module_name, sentence, verb


@dataclass(frozen=True)
class Weights(PlainData):
    """The parameters of one linear layer or convolution, compared with PyTorch's own initialisation.

    `largest` is the largest weight or bias, times sqrt(fan_in): 1 is the bound. `distance` is the Kolmogorov–Smirnov
    distance of the weights from the uniform distribution, times the root of the sample's size.
    """

    module: str
    weights: int
    frozen: bool
    largest: float
    distance: float

    @property
    def look_new(self) -> bool:
        """Whether the weights look as PyTorch draws them."""
        return _NARROWEST <= self.largest <= _WIDEST and self.distance < FARTHEST


@dataclass(frozen=True)
class Head(PlainData):
    """A layer without another one between it and the loss, and the layers directly before it.

    `shared`: another module holds its weights, too. `resting`: an optimizer holds them and nothing that trains.
    """

    own: Weights
    before: tuple[Weights, ...]
    shared: bool
    resting: bool


@observed_by(".measure:HeadsProbe")
@dataclass(frozen=True)
class Heads(PlainData):
    """The heads of one training step; `trainable` counts the model's trainable parameter tensors."""

    heads: tuple[Head, ...]
    trainable: int


FARTHEST = 1.63
"""The 1 % level of the Kolmogorov–Smirnov test."""
FEWEST = 32
_NARROWEST, _WIDEST = 0.8, 1.01
"""Range of the largest weight. With 32 uniform ones, one case of 1,000 is below 0.8. Half precision rounds it up."""


@rule(
    "DK117",
    name="frozen-random-head",
    severity=Severity.WARNING,
    certainty=Certainty.STATISTICAL,
    modes=("check",),
    needs=(Heads,),
)
def judge(seen: Heads, context: Context) -> Iterator[Finding]:
    if context.declare.trainable is not None:
        raise NotExamined("The trainable parameters are declared: DK113 compares them.")
    for head in seen.heads:
        own = head.own
        if not own.frozen or own.weights < FEWEST or not own.look_new or head.shared or head.resting:
            continue
        if any(before.frozen and before.look_new for before in head.before):
            continue
        trains = f"{counted(seen.trainable, 'other parameter')} {verb(seen.trainable, 'trains', 'train')}"
        yield context.finding(
            f"{sentence(module_name(own.module))} makes the prediction, and its {counted(own.weights, 'weight')} are "
            f"frozen as PyTorch drew them; {trains}.",
            module=own.module,
            evidence={
                "weights": own.weights,
                "largest_over_bound": own.largest,
                "distance": own.distance,
                "threshold": FARTHEST,
            },
            fix="Set `requires_grad_(True)` for this module after the rest is frozen, and give its parameters to the "
            "optimizer. For a random head on purpose, pass `declare=Declare(trainable=[…])`.",
        )
