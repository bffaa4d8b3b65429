"""What must hold for a head of eight layers, all of which learn. Runs in the grader's process; never sees the learner's code.

The learner chooses the kind of layer: a residual, a norm, another activation with the initialisation that suits it. The checks require
what any of them must give: gradients of similar size along the depth, which are the derivatives of the loss, and a head that learns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import ACTION_DIM, HORIZON, PARTS, expect_image_and_instruction_to_matter, random_batch
from labs.vla.heads import mean_over_steps
from labs.vla.policy import Policy
from labs.vla.training import overfit

DEPTH, WIDTH = 8, 64
OTHER_SIZES = {"width": 32, "horizon": 6, "action_dim": 5}
OUTPUT_STD, LEARNING_RATE = 0.05, 1e-3
LOW, HIGH = 1e-2, 1e2
STEP = 50
SHARE_LEFT = 0.5


@check(
    kind="behaviour",
    title="The gradient reaches the first layer of the head",
    property="On a fresh policy, the gradient norms of any two of the head's layers must be within a factor of 100 of each other.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_gradient_reaches_the_first_layer(submission: Submission, rng: Rng) -> None:
    for size in (rng.integer(2, 5), rng.integer(6, 12)):
        batch, seed = random_batch(rng, size), rng.seed()
        expect(submission.observe("signal", batch=batch, seed=seed), "signal")
        norms = submission.observe("gradients", batch=batch, seed=seed)["layers"]
        for index, norm in enumerate(norms):
            expect(norm, f"the gradient norm of layers.{index} ({size} frames)").above(0.0)
        expect(norms[0] / norms[-1], "the first layer's gradient norm over the last one's").between(LOW, HIGH)
        expect(max(norms) / min(norms), "the largest gradient norm of a layer over the smallest").at_most(HIGH)


@check(
    kind="behaviour",
    title="The gradient is the derivative of the loss",
    property="Moving a part of the head, or the feature, a little along its gradient must raise the loss with a slope equal to the gradient's norm.",
    instrument="debugkit.gradcheck(policy.head, torch.randn(2, 64))",
)
def test_gradient_is_the_slope_of_the_loss(submission: Submission, rng: Rng) -> None:
    size = rng.integer(3, 9)
    feature, target = rng.normal(size, WIDTH), rng.normal(size, HORIZON, ACTION_DIM)
    seen = submission.observe("slopes", feature=feature, target=target, seed=rng.seed())
    for part, norm in seen["norms"].items():
        expect(norm, f"the gradient norm of {part}").above(0.0)
        ratio = norm / seen["rises"][part] if seen["rises"][part] else float("inf")
        expect(ratio, f"the gradient norm of {part} over the slope of the loss").between(0.97, 1.03)


@check(
    kind="behaviour",
    title="The head has its full depth",
    property="`head.layers` must hold eight layers from (B, 64) to (B, 64) that run in order, each with a weight matrix and none of them within 0.1 % of a linear map. The chunk must be the output layer's map of the last one, and that layer start with a standard deviation of 0.05 and a bias of 0.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_head_is_as_deep_as_asked(submission: Submission, rng: Rng) -> None:
    size = rng.integer(2, 7)
    out = [rng.normal(HORIZON * ACTION_DIM, WIDTH), rng.normal(HORIZON * ACTION_DIM)]
    a, b = rng.normal(size, WIDTH), rng.normal(size, WIDTH)
    seen = submission.observe("build", a=a, b=b, out=out, seed=rng.seed())
    expect(len(seen["weights"]), "the number of the head's layers").equals(DEPTH)
    expect(seen["weights"], "the number of weight matrices in each layer").at_least(1)
    expect(seen["shapes"], "the output shapes of the layers").equals([[size, WIDTH]] * DEPTH)
    order = ", ".join(map(str, seen["order"])) or "none"
    expect(order, "what runs for one chunk, by the layers' numbers,").equals(", ".join(map(str, range(DEPTH))))
    *single, together = map(bend, seen["outputs"])
    expect(together, "the distance of all eight layers from a linear map").above(1e-3)
    for index, distance in enumerate(single):
        expect(distance, f"the distance of layers.{index} from a linear map").above(1e-3)
    expect_same(seen["chunk"], linear(seen["last"], out), "the chunk and the output layer's map of the last layer")
    weight, bias = seen["out"]
    expect(weight.std(), "the standard deviation of the output layer's weights").between(
        0.8 * OUTPUT_STD, 1.2 * OUTPUT_STD
    )
    expect(bias.abs().max(), "the largest bias of the output layer").equals(0.0)


@check(
    kind="behaviour",
    title="A frame's chunk is the frame's own",
    property="The head's chunk for a frame must be the same alone and among others, in training and in evaluation mode, and for a feature of another scale.",
    instrument="debugkit.check(policy, batch, select=['DK305'])",
)
def test_chunk_depends_on_its_frame_alone(submission: Submission, rng: Rng) -> None:
    for sizes in ({}, OTHER_SIZES):
        width, horizon, action_dim = (sizes or STOCK_SIZES).values()
        feature, seed = rng.normal(5, width), rng.seed()
        for rows in ROWS:
            seen = submission.observe("predicted", feature=feature, rows=rows, sizes=sizes, seed=seed)
            chunk, frames = seen["evaluation"][0], "frame 1 alone" if len(rows) == 1 else f"{len(rows)} frames"
            expect(chunk, f"the chunk of 5 features of width {width}").has_shape(5, horizon, action_dim)
            for mode, (among, apart) in seen.items():
                expect_same(apart, among[rows], f"the chunk of {frames} and the same among 5 ({mode} mode)")
                expect_same(among, chunk, f"the chunks in {mode} mode and in evaluation mode")
        seen = submission.observe("predicted", feature=8 * feature, rows=[0], sizes=sizes, seed=seed)
        expect_same(seen["evaluation"][0], chunk, "the chunks for features and for 8 times as large ones")


@check(
    kind="behaviour",
    title="The loss counts the steps of the episode",
    property="The loss must be the smooth L1 with beta 0.1 between the chunk and the normalised target, averaged over the steps that are not padding.",
    instrument="debugkit.check(policy, batch)",
)
def test_loss_is_that_of_the_chunk(submission: Submission, rng: Rng) -> None:
    for sizes, size in (({}, rng.integer(3, 7)), (OTHER_SIZES, 1)):
        width, horizon, action_dim = (sizes or STOCK_SIZES).values()
        feature, target = rng.normal(size, width), rng.normal(size, horizon, action_dim, std=4.0)
        near = rng.boolean(size, horizon, action_dim)
        steps = rng.integers(1, horizon, size, 1)
        none = torch.zeros(size, horizon, dtype=torch.bool)
        paddings = {"no": none, "some": torch.arange(horizon) >= steps, "only": ~none}
        seed = rng.seed()
        chunk = submission.observe("losses", feature=feature, target=target, paddings={}, sizes=sizes, seed=seed)[
            "chunk"
        ]
        expect(chunk, "the chunk").has_shape(size, horizon, action_dim)
        target = torch.where(near, chunk + 0.02 * target, target)
        seen = submission.observe("losses", feature=feature, target=target, paddings=paddings, sizes=sizes, seed=seed)
        for name, is_pad in paddings.items():
            error = F.smooth_l1_loss(chunk, target, beta=0.1, reduction="none").mean(dim=-1)
            frames = "1 frame" if size == 1 else f"{size} frames"
            expect(seen["losses"][name], f"the loss of {frames} with {name} padded steps").close_to(
                mean_over_steps(error, is_pad), rtol=1e-4, atol=1e-6
            )


@check(
    kind="behaviour",
    title="Learning by heart is a plain training run",
    property="`learn_by_heart` must train on the batch with `overfit`, for the given steps and seed and at a learning rate of 0.001, and return every step's loss.",
    instrument="lab run 16",
)
def test_learn_by_heart_is_overfit(submission: Submission, rng: Rng) -> None:
    seed, steps, batch = rng.seed(), rng.integer(3, 6), random_batch(rng, 4)
    seen = submission.observe("by_heart", batch=batch, steps=steps, seed=seed)
    policy = Policy.from_base(head="flow_matching", seed=seed)
    before = policy.proprioception.weight.detach().clone()
    losses = overfit(policy, batch, steps, learning_rate=LEARNING_RATE, seed=seed)
    expect(seen["losses"], f"the losses of {steps} steps").close_to(losses, rtol=1e-3, atol=1e-5)
    moved = policy.proprioception.weight.detach() - before
    error = float((seen["weights"] - before - moved).norm() / moved.norm())
    expect(error, f"the relative error of the weights' movement in {steps} steps").at_most(0.01)


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
    property=f"At step {STEP} the gradient norms of any two layers must still be within a factor of 100, and at the end at most {SHARE_LEFT:.0%} of the loss may be left.",
    instrument="debugkit.overfit_one_batch(policy, batch)",
)
def test_head_learns_by_heart(submission: Submission, seed: int) -> None:
    seen = submission.observe("learnt", seed=seed)
    expect(len(seen["norms"]), "the number of steps that were taken").above(STEP)
    norms, losses = seen["norms"][STEP], seen["losses"]
    ratio = norms.max() / norms.min()
    expect(ratio, f"at step {STEP}, the largest gradient norm of a layer over the smallest").at_most(HIGH)
    expect(losses[-1] / losses[0], "the share of the loss that is left").at_most(SHARE_LEFT)


RATIO = "test_gradient_reaches_the_first_layer/the first layer's gradient norm over the last one's"
SIGNAL = "test_gradient_reaches_the_first_layer/signal"
LEFT = "test_head_learns_by_heart/the share of the loss that is left"
LAYERS = "test_head_is_as_deep_as_asked/the number of the head's layers"
BUILD = "test_head_is_as_deep_as_asked/build"
SLOPES = "test_gradient_is_the_slope_of_the_loss/slopes"


@wrong_fix(
    "higher_learning_rate",
    says="The learning rate scales the steps of all eight layers equally. The fault is the ratio between them, and that has not changed.",
)
def recognise_learning_rate(evidence: Mapping[str, Any]) -> bool:
    first_rate = LEARNING_RATE / 20  # the warm-up's first step
    raised = evidence["test_learn_by_heart_is_overfit/by_heart"]["rate"] > 1.5 * first_rate
    return raised and evidence[RATIO] < LOW and evidence[LAYERS] == DEPTH and not is_multiplied(evidence[SLOPES])


@wrong_fix(
    "multiplied_gradients",
    says="The norms look even now, but the gradients are no longer derivatives: the loss does not rise along them as steeply as their norms say. What reaches the first layers is still almost nothing, only multiplied.",
)
def recognise_multiplied(evidence: Mapping[str, Any]) -> bool:
    seen, first, last = evidence[SLOPES], "layers.0", f"layers.{DEPTH - 1}"
    even = seen["norms"][first] > LOW * seen["norms"][last]
    return even and is_multiplied(seen) and 0 < seen["rises"][first] < LOW * seen["rises"][last]


@wrong_fix(
    "fewer_layers",
    says="A stack that is too short to lose the gradient does not fix the deep one: this head has fewer than the required eight layers.",
)
def recognise_fewer_layers(evidence: Mapping[str, Any]) -> bool:
    return 0 < evidence[LAYERS] < DEPTH


@wrong_fix(
    "no_activation",
    says="Nothing shrinks the gradient any more, because only matrices are left: eight linear layers are one linear map.",
)
def recognise_no_activation(evidence: Mapping[str, Any]) -> bool:
    are_used = evidence[LAYERS] == DEPTH and evidence[RATIO] > 0
    return are_used and all(bend(outputs) < 1e-6 for outputs in evidence[BUILD]["outputs"])


@wrong_fix(
    "relu_alone",
    says="The ratio is within bounds for the wrong reason: the signal now shrinks in the forward pass as the gradient does in the backward pass, and the weights' gradient is the product of the two. The last layer's output is nearly the same for every frame.",
)
def recognise_relu(evidence: Mapping[str, Any]) -> bool:
    varies, left = evidence[SIGNAL], evidence.get(LEFT)
    return evidence[RATIO] >= LOW and varies[-1] < 0.05 * varies[0] and left is not None and left > SHARE_LEFT


STOCK_SIZES = {"width": WIDTH, "horizon": HORIZON, "action_dim": ACTION_DIM}
ROWS = [[1, 3], [0]]
"""The frames that are also given without the others."""


def expect_same(measured: Tensor, wanted: Tensor, of_what: str) -> None:
    """Equal up to rounding, relative to the largest value."""
    expect(measured, of_what).has_shape(*wanted.shape)
    error = float((measured - wanted).abs().max() / wanted.abs().max())
    expect(error, f"the relative difference between {of_what}").at_most(1e-3)


def linear(hidden: Tensor, out: list[Tensor]) -> Tensor:
    """The reference: the chunk (B, H, A) of the last layer's output (B, D) for this weight and bias."""
    weight, bias = out
    return (hidden.double() @ weight.double().T + bias.double()).reshape(-1, HORIZON, ACTION_DIM)


def is_multiplied(slopes: Mapping[str, Mapping[str, float]]) -> bool:
    """Whether the first layer's gradient is far from the slope of the loss."""
    norm, rise = slopes["norms"]["layers.0"], slopes["rises"]["layers.0"]
    return not 0.5 < norm / rise < 2


def bend(outputs: list[Tensor]) -> float:
    """How far a map is from f(a) + f(b) = f(a + b) + f(0), which holds for every linear map; relative to its output."""
    a, b, both, none = outputs
    return float((a + b - both - none).norm() / ((a - none).norm() + (b - none).norm() + 1e-12))
