"""What must hold for a head of eight layers, all of which learn. Runs in the grader's process; never sees the learner's code.

The learner chooses the kind of layer: a residual, a norm, another activation with the initialisation that suits it. The checks require
what any of them must give: gradients of similar size along the depth, which are the derivatives of the loss, and a head that learns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import ACTION_DIM, HORIZON, PARTS, expect_image_and_instruction_to_matter, random_batch

DEPTH, WIDTH = 8, 64
LOW, HIGH = 1e-2, 1e2
STEP = 50
SHARE_LEFT = 0.5


@check(
    kind="behaviour",
    title="The gradient reaches the first layer of the head",
    property="On a fresh policy, the gradient norm of the head's first layer must be within a factor of 100 of the last one's.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_gradient_reaches_the_first_layer(submission: Submission, rng: Rng) -> None:
    expect(submission.observe("first_learning_rate", batch=random_batch(rng, 2), seed=rng.seed()), "learning rate")
    for size in (rng.integer(2, 5), rng.integer(6, 12)):
        batch, seed = random_batch(rng, size), rng.seed()
        expect(submission.observe("signal", batch=batch, seed=seed), "signal")
        norms = submission.observe("gradients", batch=batch, seed=seed)["layers"]
        expect(norms, "the gradient norm of each of the head's layers").above(0.0)
        expect(norms[0] / norms[-1], "the first layer's gradient norm over the last one's").between(LOW, HIGH)


@check(
    kind="behaviour",
    title="The gradient is the derivative of the loss",
    property="Moving a layer's weights a little along their gradient must raise the loss with a slope equal to the gradient's norm.",
    instrument="debugkit.gradcheck(head, feature)",
)
def test_gradient_is_the_slope_of_the_loss(submission: Submission, rng: Rng) -> None:
    size = rng.integer(3, 9)
    feature, target = rng.normal(size, WIDTH), rng.normal(size, HORIZON, ACTION_DIM)
    seen = submission.observe("slopes", feature=feature, target=target, seed=rng.seed())
    norms = torch.tensor(seen["norms"], dtype=torch.float64)
    expect(len(norms), "the number of layers").at_least(1)
    rises = torch.tensor(seen["rises"], dtype=torch.float64)
    expect(norms / rises, "each layer's gradient norm, over the slope of the loss,").between(0.97, 1.03)


@check(
    kind="behaviour",
    title="The head has its full depth",
    property="`head.layers` must hold eight layers from (B, 64) to (B, 64), each with a weight matrix, and together they must not be a linear map.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_head_is_as_deep_as_asked(submission: Submission, rng: Rng) -> None:
    size = rng.integer(2, 7)
    seen = submission.observe("build", a=rng.normal(size, WIDTH), b=rng.normal(size, WIDTH), seed=rng.seed())
    expect(seen["layers"], "the number of the head's layers").equals(DEPTH)
    expect(seen["weights"], "the number of weight matrices in each layer").at_least(1)
    expect(seen["shapes"], "the output shapes of the layers").equals([[size, WIDTH]] * DEPTH)
    expect(bend(seen["outputs"]), "how far the eight layers are from a linear map,").above(1e-3)


@check(
    kind="invariant",
    title="The image and the instruction matter",
    property="Another image and another instruction must each change the predicted actions.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng)


@check(
    kind="invariant",
    title="Everything is trained",
    property="Every parameter of the policy must get a gradient, and the policy must have the same parts as before.",
    instrument="debugkit.find_graph_cut(policy, batch)",
)
def test_everything_is_trained(submission: Submission, rng: Rng) -> None:
    norms = submission.observe("gradients", batch=random_batch(rng, 3), seed=rng.seed())["parameters"]
    without = sorted(name for name, norm in norms.items() if norm < 0)
    expect(without, "the list of parameters without a gradient").equals([])
    expect(sorted({name.partition(".")[0] for name in norms}), "the list of trained parts").equals(PARTS)


@check(
    kind="outcome",
    title="The head learns sixteen frames by heart",
    property=f"At step {STEP} the gradient must still reach the first layer, and at the end at most {SHARE_LEFT:.0%} of the loss may be left.",
    instrument="debugkit.overfit_one_batch(policy, batch)",
)
def test_head_learns_by_heart(submission: Submission, seed: int) -> None:
    seen = submission.observe("learnt", seed=seed)
    expect(len(seen["norms"]), "the number of steps that were taken").above(STEP)
    norms, losses = seen["norms"][STEP], seen["losses"]
    expect(norms[0] / norms[-1], f"at step {STEP}, the first layer's gradient norm over the last one's").between(
        LOW, HIGH
    )
    expect(losses[-1] / losses[0], "the share of the loss that is left").at_most(SHARE_LEFT)


RATIO = "test_gradient_reaches_the_first_layer/the first layer's gradient norm over the last one's"
LEFT = "test_head_learns_by_heart/the share of the loss that is left"
DEEP = "test_head_is_as_deep_as_asked/build"


@wrong_fix(
    "higher_learning_rate",
    says="The learning rate scales the steps of all eight layers equally. The fault is the ratio between them, and that has not changed.",
)
def recognise_learning_rate(evidence: Mapping[str, Any]) -> bool:
    return evidence["test_gradient_reaches_the_first_layer/learning rate"] > 1.5e-4 and evidence[RATIO] < LOW


@wrong_fix(
    "multiplied_gradients",
    says="The norms look even now, but the gradients are no longer derivatives: the loss does not rise along them as steeply as their norms say. What reaches the first layers is still almost nothing, only multiplied.",
)
def recognise_multiplied(evidence: Mapping[str, Any]) -> bool:
    seen = evidence["test_gradient_is_the_slope_of_the_loss/slopes"]
    return seen["rises"][0] > 0 and seen["norms"][0] / seen["rises"][0] > 2


@wrong_fix(
    "fewer_layers",
    says="A stack that is too short to lose the gradient does not fix the deep one: this head has fewer than the required eight layers.",
)
def recognise_fewer_layers(evidence: Mapping[str, Any]) -> bool:
    return 0 < evidence[DEEP]["layers"] < DEPTH


@wrong_fix(
    "no_activation",
    says="Nothing shrinks the gradient any more, because only matrices are left: eight linear layers are one linear map.",
)
def recognise_no_activation(evidence: Mapping[str, Any]) -> bool:
    return evidence[DEEP]["layers"] == DEPTH and bend(evidence[DEEP]["outputs"]) < 1e-6


@wrong_fix(
    "relu_alone",
    says="The ratio is within bounds for the wrong reason: the signal now shrinks in the forward pass as the gradient does in the backward pass, and the weights' gradient is the product of the two. The last layer's output is nearly the same for every frame.",
)
def recognise_relu(evidence: Mapping[str, Any]) -> bool:
    spread, left = evidence["test_gradient_reaches_the_first_layer/signal"], evidence.get(LEFT)
    return evidence[RATIO] >= LOW and spread[-1] < 0.05 * spread[0] and left is not None and left > SHARE_LEFT


def bend(outputs: list[Tensor]) -> float:
    """How far a map is from f(a) + f(b) = f(a + b) + f(0), which holds for every linear map; relative to its output."""
    a, b, both, none = outputs
    return float((a + b - both - none).norm() / ((a - none).norm() + (b - none).norm() + 1e-12))
