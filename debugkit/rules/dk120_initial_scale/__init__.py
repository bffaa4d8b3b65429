"""Layers start with random weights so large that their outputs are several times as large as their inputs.

## What it finds
A trainable linear layer or convolution with weights that look newly drawn (normal or uniform, with rows of equal size),
whose outputs in the first step, without the bias, are at least 3 times as large as its inputs, and at least 3. Two such
layers are a finding if they are half of the layers that look newly drawn. A single one is a finding from ten times on.

## Why it hurts
The factor multiplies from layer to layer. Logits start far from zero, so the first loss is much larger than that of a
guess; tanh, sigmoid and softmax start saturated, where they have almost no gradient. Where norms undo the scale, the
learning rate acts as if it were smaller by that factor. The usual cause is an initialisation with a fixed standard
deviation, such as `nn.init.normal_(weight)`, which does not depend on the width.

## Evidence
For the layer with the largest factor: the factor, the size of its outputs (root mean square), the standard deviation of
its weights and the fan-in; how many layers there are, and the thresholds.

## Fix
Use a standard deviation of about 1/sqrt(fan_in): PyTorch's own initialisation, `nn.init.xavier_uniform_`, or
`nn.init.kaiming_normal_`.

## When it stays silent
- PyTorch's, Xavier's, Kaiming's and orthogonal initialisation, at any width; a standard deviation of 0.02.
- Pretrained weights: their rows differ in size, or their distribution is neither normal nor uniform.
- Frozen layers (random features); one-hot inputs, where one weight is the output.
- Weights that are scaled in the forward pass (equalised learning rates, neural-tangent parametrisation).
- A fan-in below 16; transposed convolutions; a run that is resumed, whose optimizer has a state.

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
from debugkit.rule_text import amount, counted, module_name, sentence


@dataclass(frozen=True)
class NewLayer(PlainData):
    """A layer whose weights look newly drawn, and what it did in the first step.

    `deviation` is the root mean square of the weights; `inputs` and `outputs` are those of its inputs and outputs.
    """

    module: str
    fan_in: int
    deviation: float
    inputs: float
    outputs: float

    @property
    def factor(self) -> float:
        """How many times as large as the inputs the outputs are; 0 if either is not known."""
        return self.outputs / self.inputs if self.inputs > 0 else 0.0


@observed_by(".measure:InitialScaleProbe")
@dataclass(frozen=True)
class InitialScales(PlainData):
    """The layers whose weights looked newly drawn before the first step."""

    layers: tuple[NewLayer, ...]


FACTOR = 3.0
"""PyTorch's own initialisation gives 0.6; a ReLU needs 1.4, and gains up to 2 are in use."""
ALONE = 10.0
_FEWEST = 2
_NAMED = 8


@rule(
    "DK120",
    name="initial-scale",
    severity=Severity.WARNING,
    certainty=Certainty.STATISTICAL,
    modes=("check", "watch"),
    needs=(InitialScales,),
)
def judge(seen: InitialScales, context: Context) -> Iterator[Finding]:
    if not seen.layers:
        raise NotExamined("No layer has weights that look newly drawn.")
    large = [layer for layer in seen.layers if layer.factor >= FACTOR and layer.outputs >= FACTOR]
    many = len(large) >= _FEWEST and 2 * len(large) >= len(seen.layers)
    if not many and not any(layer.factor >= ALONE for layer in large):
        return
    worst = max(large, key=lambda layer: layer.factor)
    others = f", as do {counted(len(large) - 1, 'more layer')}" if len(large) > 1 else ""
    yield context.finding(
        f"{sentence(module_name(worst.module))} starts with random weights that make its outputs "
        f"{amount(worst.factor)} times as large as its inputs{others}: their standard deviation is "
        f"{amount(worst.deviation)} at a fan-in of {worst.fan_in}.",
        module=worst.module,
        evidence={
            "factor": worst.factor,
            "outputs": worst.outputs,
            "deviation": worst.deviation,
            "usual_deviation": worst.fan_in**-0.5,
            "fan_in": worst.fan_in,
            "layers": [layer.module for layer in large[:_NAMED]],
            "layers_found": len(large),
            "layers_newly_drawn": len(seen.layers),
            "threshold": FACTOR,
            "threshold_of_a_single_layer": ALONE,
        },
        fix=f"Draw these weights with a standard deviation of about {amount(worst.fan_in**-0.5)}, 1/sqrt(fan_in), as "
        "PyTorch does.",
        affects=[f"{layer.module}.weight" for layer in large],
    )
