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
    random_batch,
    random_padding,
)

WIDTH = 64
LARGEST_MOVE = 0.1
RECORDED_STD = torch.tensor([0.026, 0.026, 0.538])
EPISODES = 30
LOSS_BAR = 1e-3
NEVER_CLOSED_BAR = 0.9
"""A hundred steps reach 22 % on average, and from seed to seed between 7 % and 57 %."""
LEARNING_RATE, STEPS = 2e-3, 160


@check(
    kind="behaviour",
    title="The head can predict every action",
    property="Trained alone on six features with one chunk each, the head must come within 1 cm of every movement and within 0.2 of every gripper command.",
    instrument="debugkit.overfit_one_batch(policy, batch)",
)
def test_every_action_is_within_reach(submission: Submission, rng: Rng) -> None:
    expect(submission.observe("settings"), "settings")
    for _ in range(2):
        feature, action = 3 * rng.normal(6, WIDTH), extreme_actions(rng, 6)
        seen = submission.observe("reach", feature=feature, action=action, seed=rng.seed())
        expect(seen["action"], "the actions").has_shape(*action.shape)
        error = (seen["action"] - action).abs()
        expect(seen["loss_for_other_grips"] - seen["loss"], "what the wrong grips would cost")
        expect(error[..., 2].max(), "the largest error of a gripper command").below(0.2)
        expect(error[..., :2].max(), "the largest error of a movement in metres").below(0.01)


@check(
    kind="behaviour",
    title="Every dimension counts in the loss",
    property="A different demonstrated x, y or gripper command must each change the training loss; different padded steps must not.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_every_dimension_counts(submission: Submission, rng: Rng) -> None:
    batch = {**random_batch(rng, 5), "action_is_pad": random_padding(rng, 5, longest=HORIZON - 1)}
    others = [batch["action"] * (1 - 2 * torch.eye(3)[dimension]) for dimension in range(3)]
    padded = batch["action"] + rng.normal(5, HORIZON, 3) * batch["action_is_pad"][..., None]
    seen = submission.observe("losses", batch=batch, others=[*others, padded], seed=rng.seed())
    for name, loss in zip(("x", "y", "gripper command"), seen[1:4], strict=True):
        expect(loss, f"the loss for a different {name}").differs_from(seen[0], rtol=1e-3)
    expect(seen[4], "the loss with other padded steps").close_to(seen[0])


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
    seen = submission.observe("by_heart", seed=seed)
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


REACH = "test_every_action_is_within_reach"


@wrong_fix(
    "more_steps",
    says="The loss is flat long before the last step. More steps do not help, since this head cannot predict anything closer to the target.",
)
def recognise_more_steps(evidence: Mapping[str, Any]) -> bool:
    return out_of_reach(evidence) and evidence[f"{REACH}/settings"]["steps"] > 1.5 * STEPS


@wrong_fix(
    "higher_learning_rate",
    says="A higher learning rate reaches the same limit earlier. The loss is flat, not slow, which rules out the learning rate.",
)
def recognise_learning_rate(evidence: Mapping[str, Any]) -> bool:
    return out_of_reach(evidence) and evidence[f"{REACH}/settings"]["learning_rate"] > 3 * LEARNING_RATE


@wrong_fix(
    "clipped_targets",
    says="The loss falls because the targets were made easier: they are clipped to the head's range. The policy now learns to keep the gripper open.",
)
def recognise_clipped_targets(evidence: Mapping[str, Any]) -> bool:
    return out_of_reach(evidence) and evidence["reach"]["loss"] < 0.1


@wrong_fix(
    "no_gripper",
    says="What is left out of the loss is not learnt. The gripper command is now arbitrary, and the movements are still limited as before.",
)
def recognise_no_gripper(evidence: Mapping[str, Any]) -> bool:
    return bool(abs(evidence[f"{REACH}/what the wrong grips would cost"]) < 1e-6)


def out_of_reach(evidence: Mapping[str, Any]) -> bool:
    """Whether the head could not predict the actions it was trained on."""
    return evidence[REACH]["outcome"] == "failed"


def extreme_actions(rng: Rng, count: int) -> Tensor:
    """Chunks (B, H, 3) of movements over the whole range, including the largest; half of the chunks close the gripper."""
    move = rng.uniform(count, HORIZON, 2, low=-LARGEST_MOVE, high=LARGEST_MOVE)
    move[0], move[1] = LARGEST_MOVE, -LARGEST_MOVE
    grip = torch.where(rng.permutation(count) % 2 == 0, 1.0, -1.0)[:, None, None].expand(-1, HORIZON, 1)
    return torch.cat([move, grip], dim=-1)
