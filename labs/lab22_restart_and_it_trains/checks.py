"""Requirements for a policy trained by distance. Runs in the grader's process; judges data, and never sees the code.

The reference is the Euclidean distance in float64, and for whole steps the base policy trained with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import (
    expect_image_and_instruction_to_matter,
    padded_batch,
    random_batch,
    random_padding,
)
from labs.vla.heads import mean_over_steps
from labs.vla.policy import OBSERVATION_KEYS, Policy

GRIPPER_WEIGHT = 0.5
NEAREST = 0.01
"""Below this, the distance may be smoothed, but must not exceed it; from here on it must be exact to within 1e-6."""
LENGTHS = (NEAREST, 0.05, 2.0)
SMOOTHED = (0.0, 1e-6, 1e-3)
UNDERFLOWS = 1e-23
"""The square of this is 0 in float32."""
STEPS = 60
DISTANCE_BAR = 0.6


@check(
    kind="behaviour",
    title="One exact prediction does not break the step",
    property="When the policy predicts the recorded move exactly, in one frame or in all, loss and gradients must be finite, and every parameter must have a gradient.",
    instrument="debugkit.first_nonfinite(policy, batch)",
)
def test_gradients_are_finite_on_an_exact_prediction(submission: Submission, rng: Rng) -> None:
    some = rng.integer(5, 9)
    for size, count, training in ((some, 1, True), (some, some, True), (1, 1, False)):
        rows = rng.permutation(size)[:count].tolist()
        batch, seed = standing_still(padded_batch(rng, size), rows), rng.seed()
        seen = submission.observe("gradients", batch=batch, training=training, seed=seed)
        of = f"with an exact prediction in {count} of {size} frame{'s' * (size > 1)}"
        expect(seen["loss"], f"the loss {of}").finite()
        infinite = [name for name, norm in seen["norms"].items() if norm is not None and not norm < math.inf]
        if infinite:
            expect(submission.observe("origin", batch=batch, seed=seed), "origin")
        expect(infinite, f"the list of parameters whose gradient is not finite {of}").equals([])
        without = [name for name, norm in seen["norms"].items() if norm is None]
        expect(without, f"the list of parameters without a gradient {of}").equals([])


@check(
    kind="behaviour",
    title="The loss is still the distance",
    property=f"From {NEAREST} on, the loss must equal the distance plus half the gripper's error to within 1e-6, without the padded steps, and its gradient must point away from the target. The distance of nearer points, and of a point from itself, must be at most {NEAREST}, and so must the loss of exact predictions.",
    instrument="debugkit.overfit_one_batch(policy, batch)",
)
def test_the_distance_is_unchanged(submission: Submission, rng: Rng) -> None:
    judged = []
    for length, size in [(length, size) for length in LENGTHS for size in (1, rng.integer(3, 8))]:
        target, is_pad = rng.normal(size, 4, 3), random_padding(rng, size)
        predicted = target + away(rng, size, length)
        seen = submission.observe("loss_of_predictions", predicted=predicted, target=target, is_pad=is_pad)
        loss, gradient = reference(predicted, target, is_pad)
        expect(float(seen["loss"] - loss) + length, f"the loss of moves that are {length} off")
        judged.append((length, seen, loss, gradient))
    for length, seen, loss, gradient in judged:
        expect(seen["loss"], f"the loss at a distance of {length}").close_to(loss, rtol=1e-6, atol=1e-6)
        expect(seen["gradient"], f"the gradient at a distance of {length}").close_to(gradient, rtol=1e-3, atol=1e-5)
    for shape in ((), (5,), (2, 3, 4)):
        one, other = rng.normal(*shape, 2), rng.normal(*shape, 2)
        wanted = torch.linalg.vector_norm(one - other, dim=-1)
        measured = submission.call("distance", one, other)
        expect(measured, f"distance of points of shape {[*shape, 2]}").close_to(wanted, rtol=1e-6, atol=1e-6)
    for length in SMOOTHED:
        one = rng.uniform(5, 2, low=-1.0, high=1.0)
        measured = submission.call("distance", one + away(rng, 5, length)[:, 0, :2], one)
        expect(measured.abs(), f"the distance of points that are {length:g} apart").at_most(NEAREST)
    target, is_pad = rng.normal(3, 4, 3), random_padding(rng, 3)
    seen = submission.observe("loss_of_predictions", predicted=target, target=target, is_pad=is_pad)
    expect(seen["loss"].abs(), "the loss of exact predictions").at_most(NEAREST)


@check(
    kind="behaviour",
    title="The other frames keep their gradient",
    property="An exact prediction in the batch must not change the other frames' gradient, and its own gradient must be at most as long as theirs, even if the prediction is not exact but only so near that the square of the distance underflows.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_other_frames_keep_their_gradient(submission: Submission, rng: Rng) -> None:
    size = rng.integer(4, 8)
    exact = rng.integer(0, size)
    target, is_pad = rng.normal(size, 4, 3), torch.zeros(size, 4, dtype=torch.bool)
    alone = submission.observe("loss_of_predictions", predicted=target, target=target, is_pad=is_pad)
    expect(float(alone["loss"]), "loss of exact predictions")
    expect(bool(alone["gradient"].isfinite().all()), "whether its gradient is finite")
    predicted = target + away(rng, size, 0.5)
    predicted[exact] = target[exact]
    seen = submission.observe("loss_of_predictions", predicted=predicted, target=target, is_pad=is_pad)
    _, gradient = reference(predicted, target, is_pad)
    others = [row for row in range(size) if row != exact]
    expect(seen["gradient"][others], "the gradient of the other frames").close_to(
        gradient[others], rtol=1e-3, atol=1e-6
    )
    length = seen["gradient"][exact, :, :2].norm(dim=-1)
    expect(length * 4 * size, "the length of the exact frame's gradient").at_most(1.0 + 1e-4)
    target[exact] = 0.0
    predicted[exact] = UNDERFLOWS
    seen = submission.observe("loss_of_predictions", predicted=predicted, target=target, is_pad=is_pad)
    length = seen["gradient"][exact, :, :2].norm(dim=-1)
    expect(length * 4 * size, f"the length of the gradient of a prediction {UNDERFLOWS:g} off").at_most(1.5)


@check(
    kind="behaviour",
    title="train_step updates the policy",
    property="From a batch with an exact prediction `train_step` must update every move and every gripper command of the last layer, as it does from any other batch.",
    instrument="debugkit.check(policy, batch, optimizer=optimizer, select=['DK202'])",
)
def test_the_step_is_made(submission: Submission, rng: Rng) -> None:
    size = rng.integer(5, 9)
    batch, seed = random_batch(rng, size), rng.seed()
    exact = standing_still(batch, [rng.integer(0, size)])
    moved = submission.observe("one_step", batch=exact, seed=seed)["moved"].unflatten(0, (4, 3))
    expect(float(moved[:, :2].min()), "how far the rows of the moves went")
    expect(float(moved[:, 2].min()), "how far the rows of the gripper went")
    for name, given in (("ordinary", batch), ("exact", exact)):
        moved = submission.observe("one_step", batch=given, seed=seed)["moved"]
        expect(moved, f"how far each row of the last layer moved in an {name} step").finite()
        expect(moved, f"how far each row of the last layer moved in an {name} step").above(1e-3)


@check(
    kind="invariant",
    title="train_step clips the gradient and stops at a loss that is not finite",
    property="`train_step` must return the loss and pass the gradient of this batch alone, clipped to a norm of 1, to the optimizer, which is AdamW as in the file; if the loss is not finite, even if the gradients are, it must raise FloatingPointError and leave the weights as they are.",
    instrument="python -c 'from policy import *; print(build_optimizer(build_policy()))'",
)
def test_train_step_is_the_documented_one(submission: Submission, rng: Rng) -> None:
    for plain in (True, False):
        stream, weight, seed = [padded_batch(rng, size) for size in (5, 1, 3)], last_layer(rng), rng.seed()
        seen = submission.observe("steps", stream=stream, weight=weight, plain=plain, seed=seed)
        losses, weights = reference_steps(stream, weight, plain, seed)
        which = "SGD in training" if plain else "the file's optimizer in evaluation"
        expect(seen["losses"], f"the losses returned, with {which} mode").close_to(losses, rtol=1e-3, atol=1e-4)
        expect(seen["training"], "whether the policy is in training mode afterwards").equals(plain)
        others = differing(seen["weights"], weights, reference_steps([], weight, plain, seed)[1]) if plain else []
        expect(others, f"the list of weights that three steps with {which} mode move otherwise").equals([])
    built, standard = submission.observe("built"), Policy.from_base(seed=0)
    expect(built["class"], "the optimizer").equals("AdamW")
    expect(built["settings"], "learning rate, betas and weight decay").equals([1e-3, (0.9, 0.95), 0.01])
    numbers = sum(value.numel() for value in standard.parameters())
    expect(built["optimized"], "the number of weights that the optimizer has").equals(numbers)
    wanted = {name: value for name, value in standard.state_dict().items() if not name.startswith("head.mlp.2")}
    others = [name for name, value in wanted.items() if not torch.equal(built["weights"].get(name, value + 1), value)]
    expect(others, "the list of weights that are not those of seed 0 by default").equals([])
    stream, weight, seed = [random_batch(rng, 3)], last_layer(rng), rng.seed()
    for value in (math.nan, math.inf):
        stream[0]["state"][1, 0] = value
        seen = submission.observe("steps", stream=stream, weight=weight, plain=True, seed=seed)
        expect(seen["raised"] is not None, f"a state that is {value} makes train_step raise:").is_true()
        expect(seen["raised"], f"the message of the error at a state that is {value}").contains("loss is nan")
        others = [
            n for n, value in reference_steps([], weight, True, seed)[1].items() if (seen["weights"][n] != value).any()
        ]
        expect(others, "the list of weights that changed before train_step raised").equals([])
    stream[0] = random_batch(rng, 3)
    stream[0]["action"][1, 0, 2] = math.inf  # the loss is Inf, and every gradient is finite
    seen = submission.observe("steps", stream=stream, weight=weight, plain=True, seed=seed)
    expect(seen["raised"] is not None, "a loss that is Inf makes train_step raise:").is_true()
    before = reference_steps([], weight, True, seed)[1]
    others = [name for name, value in before.items() if (seen["weights"][name] != value).any()]
    expect(others, "the list of weights that changed although the loss is Inf").equals([])


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the predicted actions, once the last layer is not zero.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng)


@check(
    kind="invariant",
    title="Before the first update the arm does not move",
    property="A fresh policy must predict a move of exactly zero, whatever the input.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_a_fresh_policy_stands_still(submission: Submission, rng: Rng) -> None:
    chunk = submission.observe("first_action", batch=random_batch(rng, rng.integer(2, 6)), seed=rng.seed())
    expect(chunk[..., :2].abs(), "the first moves").at_most(0.0)


@check(
    kind="outcome",
    title="The policy trains on the recordings",
    property=f"After {STEPS} steps, the first on a batch with an exact prediction, the mean distance to the expert's moves must be at most {DISTANCE_BAR}.",
    instrument="lab run 22",
)
def test_it_trains_on_the_recordings(submission: Submission, seed: int) -> None:
    seen = submission.observe("training", seed=seed, steps=STEPS)
    expect(seen["losses"], "the losses").has_shape(STEPS)
    expect(seen["losses"], "the losses").finite()
    expect(float(seen["distance"]), "the mean distance to the expert's moves").at_most(DISTANCE_BAR)


FINITE = "test_gradients_are_finite_on_an_exact_prediction"
ORIGIN = f"{FINITE}/origin"
STEP = "test_the_step_is_made"
EXACT = "test_other_frames_keep_their_gradient"


@wrong_fix(
    "where_guard",
    says="The forward pass has another value now. The backward pass still goes through the root, with a gradient of 0, and 0 times Inf is NaN. The root's input must be made safe too.",
)
def recognise_where(evidence: Mapping[str, Any]) -> bool:
    return evidence[ORIGIN] == {"operation": "SqrtBackward0", "kind": "NaN"}


@wrong_fix(
    "eps_outside",
    says="The epsilon is added to the distance, after the root. The root is still taken of zero: put the epsilon under it.",
)
def recognise_eps_outside(evidence: Mapping[str, Any]) -> bool:
    is_root = evidence[ORIGIN] == {"operation": "SqrtBackward0", "kind": "Inf"}
    return is_root and 0 < evidence[f"{EXACT}/loss of exact predictions"] < NEAREST


@wrong_fix(
    "skip_the_batch",
    says="The policy stays finite because the step is skipped. One frame costs the healthy frames of the batch, silently: a run in which every batch has such a frame learns nothing.",
)
def recognise_skip(evidence: Mapping[str, Any]) -> bool:
    return ORIGIN in evidence and evidence[f"{STEP}/{MOVES}"] == evidence[f"{STEP}/{GRIPPER}"] == 0.0


@wrong_fix(
    "nan_to_num",
    says="This replaces NaN with 0, but backward has already spread the NaN: of the batch's gradient only the gripper's part is left.",
)
def recognise_nan_to_num(evidence: Mapping[str, Any]) -> bool:
    return ORIGIN in evidence and evidence[f"{STEP}/{MOVES}"] == 0.0 and evidence[f"{STEP}/{GRIPPER}"] > 0.0


@wrong_fix(
    "large_eps",
    says="The gradient is finite everywhere, but this is a different loss: near the target its gradient almost vanishes. Use an epsilon far below the relevant distances.",
)
def recognise_large_eps(evidence: Mapping[str, Any]) -> bool:
    losses = losses_of_moves(evidence)
    added = [loss**2 - length**2 for loss, length in zip(losses, LENGTHS, strict=True)]
    under_the_root = min(losses) > 0 and 1e-7 < added[0] < 0.1 and abs(added[1] / added[0] - 1) < 0.05
    return under_the_root and ORIGIN not in evidence


@wrong_fix(
    "squared_distance",
    says="Without the root every gradient is finite, but this is the squared distance: outliers outweigh the rest, and near the target the gradient vanishes.",
)
def recognise_square(evidence: Mapping[str, Any]) -> bool:
    losses = losses_of_moves(evidence)
    return all(abs(loss / length**2 - 1) < 0.01 for loss, length in zip(losses, LENGTHS, strict=True))


@wrong_fix(
    "random_start",
    says="An exact prediction is rarer now, but it still breaks the run. And the arm now moves before its first update.",
)
def recognise_random_start(evidence: Mapping[str, Any]) -> bool:
    moves = evidence["test_a_fresh_policy_stands_still/the first moves"]
    return bool((moves > 0).any()) and evidence[f"{EXACT}/whether its gradient is finite"] is False


MOVES, GRIPPER = "how far the rows of the moves went", "how far the rows of the gripper went"


def losses_of_moves(evidence: Mapping[str, Any]) -> list[float]:
    """The measured loss of moves at each of the lengths."""
    return [evidence[f"test_the_distance_is_unchanged/the loss of moves that are {length} off"] for length in LENGTHS]


def standing_still(batch: dict[str, Tensor], rows: list[int]) -> dict[str, Tensor]:
    """The batch with frames in which the operator has not moved: exactly what a fresh policy predicts."""
    action = batch["action"].clone()
    is_pad = batch["action_is_pad"].clone()
    action[rows] = torch.tensor([0.0, 0.0, -1.0])
    is_pad[rows] = False
    return {**batch, "action": action, "action_is_pad": is_pad}


def away(rng: Rng, size: int, length: float) -> Tensor:
    """Residuals (B, 4, 3) with a move of `length` in a random direction and a large gripper error."""
    angle = rng.uniform(size, 4, low=0.3, high=1.2) + 1.57 * rng.integers(0, 4, size, 4)
    move = length * torch.stack([angle.cos(), angle.sin()], dim=-1)
    return torch.cat([move, rng.uniform(size, 4, 1, low=0.2, high=1.0)], dim=-1)


def last_layer(rng: Rng) -> Tensor:
    """A last weight that is not zero, so that every layer has a gradient."""
    return rng.normal(12, 128, std=0.1)


def reference(predicted: Tensor, target: Tensor, is_pad: Tensor) -> tuple[Tensor, Tensor]:
    """The loss and its gradient, for distances that are not zero."""
    residual = (predicted.double() - target.double()).requires_grad_()
    loss = mean_over_steps(cost(residual), is_pad)
    (gradient,) = torch.autograd.grad(loss, residual)
    return loss.detach().float(), gradient.float()


def cost(residual: Tensor) -> Tensor:
    """Distance and weighted error of the gripper of residuals (B, H, 3): (B, H)."""
    return torch.linalg.vector_norm(residual[..., :2], dim=-1) + GRIPPER_WEIGHT * residual[..., 2].abs()


def reference_steps(
    stream: list[dict[str, Tensor]], weight: Tensor, plain: bool, seed: int
) -> tuple[list[float], dict[str, Tensor]]:
    """The losses of training the base policy with the documented loss on each batch, and the weights after it."""
    policy = Policy.from_base(seed=seed).train()
    with torch.no_grad():
        policy.head.mlp[-1].weight.copy_(weight)
        policy.head.mlp[-1].bias.zero_()
    optimizer: torch.optim.Optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
    if not plain:
        optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01)
    losses = []
    for batch in stream:
        chunk = policy.head(policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS}))
        loss = mean_over_steps(
            cost(chunk - policy.action_statistics.normalize(batch["action"])), batch["action_is_pad"]
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, {name: value.detach() for name, value in policy.named_parameters()}


def differing(measured: Mapping[str, Any], wanted: Mapping[str, Tensor], before: Mapping[str, Tensor]) -> list[str]:
    """The names of the weights that are missing, or that moved by something else than wanted."""
    moved = {name: value - before[name] for name, value in wanted.items()}
    return [
        name
        for name, value in moved.items()
        if name not in measured
        or float((measured[name] - before[name] - value).norm()) > 0.03 * float(value.norm()) + 1e-5
    ]
