"""The layer that makes the prediction, or another one alone, is frozen with the random weights it began with.

## What it finds
A linear layer or convolution just before the loss whose parameters are all frozen and look as PyTorch draws them: the
weights are uniform within ±1/sqrt(fan_in). Other parameters train.

Also the weights of one linear layer, convolution or embedding that are frozen as they were drawn, while every other
layer trains and has just been drawn, too. If the bias of the same layer trains, this is a `warning`. If the layer is
frozen as a whole, it is `info`: that is also done on purpose, and nothing in the model tells the two apart.

## Why it hurts
Every prediction passes a fixed random projection. The trained weights can only adapt to it, so the loss falls slowly
and stops early. Usual causes: the whole model was frozen after the new head was put in; an adapter library froze
everything but its adapters (`modules_to_save` was forgotten); a pattern that was meant for the body matches the head.

A random embedding or stem limits all layers behind it. It is often frozen by a line that is left from a fine-tuning
run.

## Evidence
The number of weights, the largest one as a share of the bound, and the distance from the uniform distribution
(Kolmogorov–Smirnov, multiplied by the root of the sample's size) with its threshold, 1.63, the 1 % level. A layer alone
is compared with PyTorch's uniform distribution, with the normal one of the configuration's `initializer_range` or 0.02,
and an embedding with the normal one of deviation 1; and the evidence says how many other layers train.

Under `watch()`, the weights are read in the first step, and judged after the eighth: they must still be frozen and
bitwise the same. A layer alone is examined only if its bias trains, because the gradient of the bias shows that the
loss reaches it.

## Fix
Set `requires_grad_(True)` for the head after everything else is frozen, and give its parameters to the optimizer.

## When it stays silent
- A frozen head with trained weights, with another initialisation (normal, orthogonal, zero), or tied to an embedding.
- A frozen network that is random as a whole: a discriminator in the step of its generator, a random target. The layer
  before the head is then frozen and as random, or an optimizer holds frozen parameters only.
- Fewer than 32 weights, and fewer than 64 of a layer alone.
- A layer alone whose weights are tied, loaded or of another distribution (a fixed encoding, random Fourier features,
  word vectors); a second frozen layer; fewer than two other layers, or some that do not look new (a loaded model);
  optimizer steps that were already taken; a layer whose output is compared by the loss itself, as of a random target,
  or that gets no gradient even if it is trainable.
- `Declare(pretrained=True)` or a declared checkpoint, for a layer alone.
- Under `watch()`, a layer that trains in one of the first eight steps, as a discriminator does between the steps of its
  generator, or whose weights are written in them; runs of fewer steps; compiled models.
- The trainable parameters are declared: `Declare(trainable=…)`. DK113 compares them.

## Cost
Hooks on every layer, and one walk through the graph of the loss. One more pass where a layer alone is frozen.

## Lesson
No lab of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, NotExamined, Severity
from debugkit.observation import measured_by, observed_by
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


@observed_by(".measure:HeadsProbe", in_loop=".in_loop:HeadsInLoopProbe")
@dataclass(frozen=True)
class Heads(PlainData):
    """The heads of one training step; `trainable` counts the model's trainable parameter tensors."""

    heads: tuple[Head, ...]
    trainable: int


@measured_by(".measure:find_the_frozen_layer", cost=0, requires=("batch",), in_loop=".in_loop:FrozenAloneProbe")
@dataclass(frozen=True)
class FrozenAlone(PlainData):
    """The only layer whose weights are frozen, in a model that trains from its initialisation.

    `drawn` is the distribution that its weights look drawn from. `others` counts the layers that train. `reached` is
    whether the loss gives it a gradient once it is trainable, and `last` whether no other layer is between it and the
    loss.
    """

    module: str
    parameter: str
    weights: int
    drawn: str
    distance: float
    others: int
    reached: bool
    last: bool
    partly: bool
    """Whether another parameter of the same layer trains."""


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
    modes=("check", "watch"),
    needs=(Heads,),
    uses=(FrozenAlone,),
)
def judge(seen: Heads, alone: FrozenAlone | None, context: Context) -> Iterator[Finding]:
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
    if alone is not None and alone.reached and not alone.last and alone.distance < FARTHEST:
        yield context.finding(
            f"The {counted(alone.weights, 'weight')} of {module_name(alone.module)} are frozen as they were drawn; all "
            f"{alone.others:,} other layers train.",
            module=alone.module,
            parameter=alone.parameter,
            evidence={
                "weights": alone.weights,
                "drawn_from": alone.drawn,
                "distance": alone.distance,
                "threshold": FARTHEST,
                "other_layers": alone.others,
            },
            fix="Set `requires_grad_(True)` for this module, and give its parameters to the optimizer. For a random "
            "layer on purpose, pass `declare=Declare(trainable=[…])`.",
            severity=None if alone.partly else Severity.INFO,
        )
