"""What must hold for a head that predicts recorded actions. Runs in the grader's process, without the learner's code.

The checks test what the robot needs, in metres and in the gripper's units. The learner decides how the head provides it,
with which bound or with none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import (
    HORIZON,
    expect_frames_to_be_independent,
    expect_image_and_instruction_to_matter,
    listed,
    random_batch,
)
from labs.vla.heads import mean_over_steps
from labs.vla.policy import Policy

WIDTH = 64
LARGEST_MOVE = 0.1
LIMITS = torch.tensor([LARGEST_MOVE, LARGEST_MOVE, 1.0])
RECORDED_MEAN, RECORDED_STD = torch.tensor([0.0, 0.0, -0.843]), torch.tensor([0.026, 0.026, 0.538])
MOVE_TOLERANCE, GRIP_TOLERANCE = 0.002, 0.02
"""A head that ends in `4 * tanh` reaches 0.00001 and 0.0001, one in `3.5 * tanh` 0.009 and 0.04."""
TOLERANCE = 1e-3
"""Relative to the reference's size. Rounding alone gives 1e-6."""
EPISODES = 30
LOSS_BAR = 1e-3
NEVER_CLOSED_BAR = 0.9
"""A hundred steps reach 22 % on average, and from seed to seed between 7 % and 57 %."""
LEARNING_RATE, STEPS, HIDDEN = 2e-3, 160, 128


@check(
    kind="behaviour",
    title="The head can predict every action",
    property="Trained alone on six features with one chunk each, the head must come within 2 mm of every movement and within 0.02 of every gripper command.",
    instrument="debugkit.overfit_one_batch(policy, batch)",
)
def test_every_action_is_within_reach(submission: Submission, rng: Rng) -> None:
    submission.observe("settings")
    submission.observe("limits", feature=rng.normal(64, WIDTH), seed=rng.seed())
    for _ in range(2):
        feature, action = rng.normal(6, WIDTH), extreme_actions(rng, 6)
        seen = submission.observe("reach", feature=feature, action=action, seed=rng.seed())
        for mode, predicted in seen.items():
            expect(predicted, f"the actions in {mode}").has_shape(*action.shape)
            error = (predicted - action).abs()
            expect(error[..., 2].max(), f"the largest error of a gripper command in {mode}").below(GRIP_TOLERANCE)
            expect(error[..., :2].max(), f"the largest error of a movement in metres in {mode}").below(MOVE_TOLERANCE)


@check(
    kind="behaviour",
    title="The loss compares the prediction with the demonstration",
    property="The training loss must be the smooth L1 between the predicted and the demonstrated actions, in the recordings' standard deviations, averaged over all three dimensions and the steps that are not padding.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_loss_compares_with_the_demonstration(submission: Submission, rng: Rng) -> None:
    submission.observe("counted", seed=rng.seed())
    for frames in (6, 1):
        feature, action = rng.normal(frames, WIDTH), demonstrated(rng, frames)
        is_pad = torch.arange(HORIZON) >= rng.permutation(frames)[:, None] % HORIZON + 1
        seen = submission.observe("loss_at", feature=feature, action=action, is_pad=is_pad, seed=rng.seed())
        chunk = seen["chunk"].requires_grad_()
        loss = reference_loss(chunk, action, is_pad)
        (slope,) = torch.autograd.grad(loss, chunk)
        said = "1 frame" if frames == 1 else f"{frames} frames"
        expect(seen["loss"], f"the loss of {said}").close_to(loss.detach(), rtol=TOLERANCE)
        gradient = torch.einsum("bha,bhad->bd", slope, seen["jacobian"])
        expect(
            relative_error(seen["gradient"], gradient), f"the relative error of the loss's derivative ({said})"
        ).below(TOLERANCE)


@check(
    kind="behaviour",
    title="The policy stays within the robot's limits",
    property="`predict` must return the head's numbers in environment units, limited to 10 cm and to the gripper's two commands.",
    instrument="python -c 'from labs.vla.tabletop import *; print(ACTION_LOW, ACTION_HIGH)'",
)
def test_actions_are_within_the_limits(submission: Submission, rng: Rng) -> None:
    for size in (0.1, 1e4):
        seen = submission.observe("decoded", feature=size * rng.normal(20, WIDTH), seed=rng.seed())
        wanted = torch.minimum(torch.maximum(seen["normalised"] * RECORDED_STD + RECORDED_MEAN, -LIMITS), LIMITS)
        expect(seen["action"], f"the actions for features of size {size:g}").close_to(wanted, rtol=1e-4, atol=1e-5)


@check(
    kind="invariant",
    title="Checkpoints trained on the recordings still load",
    property="A checkpoint must hold the recordings' statistics, and parameters of the same names and shapes as before.",
    instrument="python -c 'from policy import *; print(RecordedPolicy().state_dict().keys())'",
)
def test_checkpoints_still_load(submission: Submission) -> None:
    found, wanted = submission.observe("checkpoint"), Policy.from_base().state_dict()
    wanted |= {"action_statistics.mean": RECORDED_MEAN, "action_statistics.std": RECORDED_STD}
    expect(listed(wanted.keys() - found.keys()), "what is missing from the checkpoint").equals("nothing")
    expect(listed(found.keys() - wanted.keys()), "what the checkpoint has too many").equals("nothing")
    shapes = {
        f"{name}: {list(found[name].shape)}, not {list(value.shape)}"
        for name, value in wanted.items()
        if found[name].shape != value.shape
    }
    expect(listed(shapes), "what has another shape").equals("nothing")
    for name, value in {"mean": RECORDED_MEAN, "standard deviation": RECORDED_STD}.items():
        stored = found["action_statistics.mean" if name == "mean" else "action_statistics.std"]
        expect(stored, f"the {name} of the actions in the checkpoint").close_to(value, rtol=1e-4)


@check(
    kind="invariant",
    title="Every part is trained, in the steps and batches asked for",
    property="A demonstration must give every parameter a gradient, and `train` must return one loss for each step, of batches of the given size that the seed determines.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_every_part_is_trained(submission: Submission, rng: Rng) -> None:
    batch, steps, size = random_batch(rng, 3), rng.integer(2, 4), rng.integer(3, 7)
    expect(
        listed(set(submission.observe("trained_parts", batch=batch, seed=rng.seed())["idle"])), "what has no gradient"
    ).equals("nothing")
    seen = submission.observe("fine_tuned", seed=rng.integer(0, 1_000_000), steps=steps, batch_size=size)
    expect(len(seen["losses"]), f"the number of losses that {steps} steps of training return").equals(steps)
    expect(seen["losses"][0], f"the first loss, of a batch of {size},").close_to(seen["before"][0], rtol=TOLERANCE)
    expect(seen["again"], "the losses when trained again with the same seed").close_to(seen["losses"], rtol=TOLERANCE)


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
    title="In evaluation a frame does not depend on the rest of the batch",
    property="The action predicted for a frame must be the same whatever else is in the batch.",
    instrument="debugkit.check(policy, batch, select=['DK305'])",
)
def test_frames_are_independent(submission: Submission, rng: Rng) -> None:
    expect_frames_to_be_independent(submission, rng)


@check(
    kind="outcome",
    title="Sixteen frames are learnt by heart",
    property=f"After `learn_by_heart` the smooth L1 loss, in the recordings' standard deviations, must be below {LOSS_BAR:g}.",
    instrument="debugkit.overfit_one_batch(policy, batch)",
)
def test_one_batch_is_learnt(submission: Submission, seed: int) -> None:
    steps = submission.observe("settings")["steps"]
    seen = submission.observe("by_heart", seed=seed)
    expect(len(seen["losses"]), "the number of losses that `learn_by_heart` returns").equals(int(steps))
    error = (seen["predicted"] - seen["action"]) / RECORDED_STD
    of_step = F.smooth_l1_loss(error, torch.zeros_like(error), beta=0.1, reduction="none").mean(dim=-1)
    expect(of_step[~seen["action_is_pad"]].mean(), "the loss on the batch").below(LOSS_BAR)


@check(
    kind="outcome",
    title="The robot closes its gripper",
    property=f"After a short fine-tuning, at most {NEVER_CLOSED_BAR:.0%} of {EPISODES} episodes may end without the gripper ever closing.",
    instrument="lab run 55",
)
def test_gripper_closes(submission: Submission, seed: int) -> None:
    result = submission.observe("trained_rollout", seed=seed, episodes=EPISODES)
    expect(result["never_closed"], "the results per episode").has_shape(EPISODES)
    expect(
        result["never_closed"].double().mean(), "the fraction of episodes in which the gripper never closed"
    ).at_most(NEVER_CLOSED_BAR)


REACH, COUNTS = "test_every_action_is_within_reach", "test_loss_compares_with_the_demonstration"


@wrong_fix(
    "more_steps",
    says="The loss is flat long before the last step. More steps do not help, since this head cannot predict anything closer to the target.",
)
def recognise_more_steps(evidence: Mapping[str, Any]) -> bool:
    return bounded_at_one(evidence) and evidence[f"{REACH}/settings"]["steps"] > 1.5 * STEPS


@wrong_fix(
    "higher_learning_rate",
    says="A higher learning rate reaches the same limit earlier. The loss is flat, not slow, which rules out the learning rate.",
)
def recognise_learning_rate(evidence: Mapping[str, Any]) -> bool:
    return bounded_at_one(evidence) and evidence[f"{REACH}/settings"]["learning_rate"] > 3 * LEARNING_RATE


@wrong_fix(
    "larger_head",
    says="The head has more units now, followed by the same limit: no number of units in front of it lets the head predict more than 1.",
)
def recognise_larger_head(evidence: Mapping[str, Any]) -> bool:
    bias = evidence["checkpoint"].get("head.mlp.0.bias")
    return bounded_at_one(evidence) and counts_all(evidence) and isinstance(bias, Tensor) and len(bias) > HIDDEN


@wrong_fix(
    "clipped_targets",
    says="The loss falls because the targets were made easier: they are clipped to the head's range. The policy now learns to keep the gripper open.",
)
def recognise_clipped_targets(evidence: Mapping[str, Any]) -> bool:
    seen = evidence[f"{COUNTS}/counted"]
    return bounded_at_one(evidence) and seen["within"] > 1e-3 and abs(seen["beyond"]) < 1e-6


@wrong_fix(
    "no_gripper",
    says="What is left out of the loss is not learnt. The gripper command is now arbitrary, and the movements are still limited as before.",
)
def recognise_no_gripper(evidence: Mapping[str, Any]) -> bool:
    seen = evidence[f"{COUNTS}/counted"]
    return bounded_at_one(evidence) and seen["moves"] > 1e-3 and abs(seen["grips"]) < 1e-6


def bounded_at_one(evidence: Mapping[str, Any]) -> bool:
    """Whether the head's normalised numbers come close to -1 and to 1, and never further."""
    seen = evidence[f"{REACH}/limits"]
    return -1.001 < seen["smallest"] < -0.9 and 0.9 < seen["largest"] < 1.001


def counts_all(evidence: Mapping[str, Any]) -> bool:
    """Whether every dimension's targets, inside and outside the head's range, make a difference to the loss."""
    return all(value > 1e-3 for value in evidence[f"{COUNTS}/counted"].values())


def reference_loss(chunk: Tensor, action: Tensor, is_pad: Tensor) -> Tensor:
    """The lesson's loss of a normalised chunk (B, H, 3), for demonstrated actions in environment units."""
    target = (action - RECORDED_MEAN) / RECORDED_STD
    error = F.smooth_l1_loss(chunk, target, beta=0.1, reduction="none")
    return mean_over_steps(error.mean(dim=-1), is_pad)


def relative_error(measured: Tensor, wanted: Tensor) -> float:
    """The difference relative to the size of `wanted`; 1 where `wanted` is zero."""
    return float((measured - wanted).norm() / wanted.norm().clamp(min=1e-12)) if wanted.any() else 1.0


def extreme_actions(rng: Rng, count: int) -> Tensor:
    """Chunks (B, H, 3) of movements over the whole range, including the largest; half of the chunks close the gripper."""
    move = rng.uniform(count, HORIZON, 2, low=-LARGEST_MOVE, high=LARGEST_MOVE)
    move[0], move[1] = LARGEST_MOVE, -LARGEST_MOVE
    grip = torch.where(rng.permutation(count) % 2 == 0, 1.0, -1.0)[:, None, None].expand(-1, HORIZON, 1)
    return torch.cat([move, grip], dim=-1)


def demonstrated(rng: Rng, count: int) -> Tensor:
    """Chunks (B, H, 3) whose first two steps are close to the mean action, and whose last two are far from it."""
    near = RECORDED_MEAN + 0.1 * RECORDED_STD * rng.normal(count, HORIZON, 3)
    is_far = torch.arange(HORIZON)[:, None] >= HORIZON // 2
    return torch.where(is_far, extreme_actions(rng, max(count, 2))[:count], near)
