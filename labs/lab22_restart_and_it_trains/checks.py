"""Requirements for a policy trained by distance. Runs in the grader's process; judges data, and never sees the code.

The reference is the Euclidean distance in float64. The learner's answer about the first Inf is compared with what this
process finds by watching every backward node of the shipped formula.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_image_and_instruction_to_matter, random_batch

GRIPPER_WEIGHT = 0.5
NEAREST = 0.01
"""Below this, the distance may be smoothed; from here on it must be exact to within 1e-6."""
STEPS = 60
DISTANCE_BAR = 0.6


@check(
    kind="behaviour",
    title="One exact prediction does not break the step",
    property="When the policy predicts the recorded move exactly, in one frame or in all, loss and gradients must be finite.",
    instrument="debugkit.first_nonfinite(policy, batch)",
)
def test_gradients_are_finite_on_an_exact_prediction(submission: Submission, rng: Rng) -> None:
    size = rng.integer(5, 9)
    for still in ([rng.integer(0, size)], list(range(size))):
        batch, seed = standing_still(random_batch(rng, size), still), rng.seed()
        seen = submission.observe("gradients", batch=batch, seed=seed)
        expect(seen["loss"], "the loss").finite()
        norms = [seen["norms"].get(name, 0.0) for name in sorted(seen["norms"])]
        if not all(torch.isfinite(torch.tensor(norms))):
            expect(submission.observe("origin", batch=batch, seed=seed), "origin")
        expect(norms, "the gradient norm of each parameter").finite()
        expect(len(norms), "the number of parameters with a gradient").equals(seen["parameters"])


@check(
    kind="behaviour",
    title="The loss is still the distance",
    property=f"From {NEAREST} on, the loss must equal the distance to within 1e-6, and its gradient must point away from the target.",
    instrument="debugkit.overfit_one_batch(policy, batch)",
)
def test_the_distance_is_unchanged(submission: Submission, rng: Rng) -> None:
    for size in (1, rng.integer(3, 8)):
        for length in (NEAREST, 0.05, 2.0):
            target, is_pad = rng.normal(size, 4, 3), torch.zeros(size, 4, dtype=torch.bool)
            predicted = target + away(rng, size, length)
            seen = submission.observe("loss_of_predictions", predicted=predicted, target=target, is_pad=is_pad)
            loss, gradient = reference(predicted, target)
            expect(float(seen["loss"] - loss), f"how far off the loss is at {length}")
            expect(seen["loss"], f"the loss at a distance of {length}").close_to(loss, rtol=1e-6, atol=1e-6)
            expect(seen["gradient"], f"the gradient at a distance of {length}").close_to(gradient, rtol=1e-3, atol=1e-5)


@check(
    kind="behaviour",
    title="The other frames keep their gradient",
    property="An exact prediction in the batch must not change the other frames' gradient, and its own gradient must be at most as long as theirs.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_other_frames_keep_their_gradient(submission: Submission, rng: Rng) -> None:
    size = rng.integer(4, 8)
    exact = rng.integer(0, size)
    target, is_pad = rng.normal(size, 4, 3), torch.zeros(size, 4, dtype=torch.bool)
    predicted = target + away(rng, size, 0.5)
    predicted[exact] = target[exact]
    seen = submission.observe("loss_of_predictions", predicted=predicted, target=target, is_pad=is_pad)
    _, gradient = reference(predicted, target)
    others = [row for row in range(size) if row != exact]
    expect(seen["gradient"][others], "the gradient of the other frames").close_to(
        gradient[others], rtol=1e-3, atol=1e-6
    )
    length = seen["gradient"][exact, :, :2].norm(dim=-1)
    expect(length * 4 * size, "the length of the exact frame's gradient").at_most(1.0 + 1e-4)


@check(
    kind="behaviour",
    title="train_step updates the policy",
    property="train_step must update the policy from a batch with an exact prediction as it does from any other batch.",
    instrument="debugkit.check(policy, batch, optimizer=optimizer, select=['DK202'])",
)
def test_the_step_is_made(submission: Submission, rng: Rng) -> None:
    size = rng.integer(5, 9)
    batch, seed = random_batch(rng, size), rng.seed()
    for name, given in (("ordinary", batch), ("exact", standing_still(batch, [rng.integer(0, size)]))):
        moved = submission.observe("one_step", batch=given, seed=seed)["moved"]
        # the layer below a last layer of zeros has no gradient yet: only weight decay moves it
        expect(moved[-2:], f"how far the last layer moved in an {name} step").finite()
        expect(moved[-2:], f"how far the last layer moved in an {name} step").above(1e-3)


@check(
    kind="behaviour",
    title="The operation that makes the first Inf is named",
    property="FIRST_NONFINITE_OP must name the backward node that makes the first Inf or NaN of the step from finite numbers.",
    instrument="debugkit.first_nonfinite(policy, batch)",
)
def test_the_first_operation_is_named(submission: Submission) -> None:
    named = submission.observe("named")
    expect(named, "FIRST_NONFINITE_OP")
    expect(named == first_nonfinite_node(), f"FIRST_NONFINITE_OP = {named!r} is the first such node:").is_true()


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


@wrong_fix(
    "where_guard",
    says="The forward pass takes the other branch now. The backward pass goes through both: the branch not taken gets a gradient of 0, and 0 times Inf is NaN. Its input must be made safe too.",
)
def recognise_where(evidence: Mapping[str, Any]) -> bool:
    return evidence.get(f"{FINITE}/origin") == {"operation": "SqrtBackward0", "kind": "NaN"}


@wrong_fix(
    "wrong_name",
    says="That is where the first NaN appears. Its input was already an Inf: look one node earlier, at the node that made the Inf from finite numbers.",
)
def recognise_wrong_name(evidence: Mapping[str, Any]) -> bool:
    return evidence.get("test_the_first_operation_is_named/FIRST_NONFINITE_OP") == "PowBackward0"


@wrong_fix(
    "skip_the_batch",
    says="The policy stays finite because the step is skipped. One frame costs the healthy frames of the batch, silently: a run in which every batch has such a frame learns nothing.",
)
def recognise_skip(evidence: Mapping[str, Any]) -> bool:
    return evidence.get("test_the_step_is_made/how far the last layer moved in an exact step") == [0.0, 0.0]


@wrong_fix(
    "nan_to_num",
    says="This replaces NaN with 0, but backward has already spread the NaN to every parameter: of the batch's gradient only the few values remain that it did not reach.",
)
def recognise_nan_to_num(evidence: Mapping[str, Any]) -> bool:
    moved = evidence.get("test_the_step_is_made/how far the last layer moved in an exact step", [0.0])
    return f"{FINITE}/origin" in evidence and all(math.isfinite(far) and far > 0 for far in moved)


@wrong_fix(
    "large_eps",
    says="The gradient is finite everywhere, but this is a different loss: near the target its gradient almost vanishes. Use an epsilon far below the relevant distances.",
)
def recognise_large_eps(evidence: Mapping[str, Any]) -> bool:
    off = evidence.get(f"test_the_distance_is_unchanged/how far off the loss is at {NEAREST}", 0.0)
    return f"{FINITE}/origin" not in evidence and off > 2e-6


@wrong_fix(
    "random_start",
    says="An exact prediction is rarer now, but it still breaks the run. And the arm now moves before its first update.",
)
def recognise_random_start(evidence: Mapping[str, Any]) -> bool:
    moves = evidence.get("test_a_fresh_policy_stands_still/the first moves")
    return moves is not None and bool((moves > 0).any())


def standing_still(batch: dict[str, Tensor], rows: list[int]) -> dict[str, Tensor]:
    """The batch with frames in which the operator has not moved: exactly what a fresh policy predicts."""
    action = batch["action"].clone()
    action[rows] = torch.tensor([0.0, 0.0, -1.0])
    return {**batch, "action": action}


def away(rng: Rng, size: int, length: float) -> Tensor:
    """Residuals (B, 4, 3) with a move of `length` in a random direction and a large gripper error."""
    angle = rng.uniform(size, 4, low=0.3, high=1.2) + 1.57 * rng.integers(0, 4, size, 4)
    move = length * torch.stack([angle.cos(), angle.sin()], dim=-1)
    return torch.cat([move, rng.uniform(size, 4, 1, low=0.2, high=1.0)], dim=-1)


def reference(predicted: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The loss and its gradient, for distances that are not zero."""
    residual = (predicted.double() - target.double()).requires_grad_()
    distance = torch.linalg.vector_norm(residual[..., :2], dim=-1)
    loss = (distance + GRIPPER_WEIGHT * residual[..., 2].abs()).mean()
    (gradient,) = torch.autograd.grad(loss, residual)
    return loss.detach().float(), gradient.float()


def first_nonfinite_node() -> str:
    """The backward node that makes the first non-finite number of the documented distance at zero, in this torch version."""
    residual = torch.zeros(1, 2, requires_grad=True)
    loss = residual.pow(2).sum(dim=-1).sqrt().mean()
    found: list[str] = []

    def watch(node: Any) -> None:
        def seen(made: tuple[Any, ...], given: tuple[Any, ...]) -> None:
            finite = [all(g is None or bool(g.isfinite().all()) for g in side) for side in (given, made)]
            if finite == [True, False]:
                found.append(node.name())

        node.register_hook(seen)
        for follower, _ in node.next_functions:
            if follower is not None:
                watch(follower)

    watch(loss.grad_fn)
    loss.backward()
    return found[0]
