"""What must hold for a policy with a separate gripper head. Runs in the grader's process; never sees the learner's code.

The reference is written from the docstrings of policy.py: motions in units of their standard deviation under a smooth L1, and
one weighted squared error for each frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_success_rate, padded_batch, random_batch
from labs.vla.normalization import TABLETOP_STD

HORIZON = 4
EXECUTED_STEPS = 2
MOTION_STD = TABLETOP_STD[0]
OPEN_WEIGHT = 1.5

OVERFIT_STEPS = 60
OVERFIT_BAR = 0.1
EPISODES = 50
SUCCESS_BAR = 0.5


@check(
    kind="behaviour",
    title="The loss has one error per frame, at every batch size",
    property="The loss of B frames must be the mean over the B frames: motion error plus weighted gripper error, each frame against its own target.",
    instrument="debugkit.check(policy, batch, select=['DK002'])",
)
def test_loss_equals_the_reference(submission: Submission, rng: Rng) -> None:
    measured, wanted, sizes = [], [], (17, 1, 2, rng.integer(3, 8))
    for size in sizes:
        batch = batch_with_few_grasps(rng, size)
        seen = submission.observe("loss_and_action", batch=batch, seed=rng.seed())
        motion, command, target = motion_loss(seen["action"], batch), seen["action"][:, 0, 2], grasp_target(batch)
        if size == sizes[0]:
            expect(formula(float(seen["loss"]) - motion, command, target), "formula")
            submission.observe("operands", batch=batch, seed=rng.seed())
        measured.append(seen["loss"])
        wanted.append(motion + gripper_loss(command, target))
    for size, loss, reference in zip(sizes, measured, wanted, strict=True):
        expect(loss, f"the loss of {size} frame{'s' * (size > 1)}").close_to(reference, rtol=1e-4, atol=1e-5)


@check(
    kind="behaviour",
    title="A frame's loss does not depend on its neighbours",
    property="If no step is padded, the loss of a batch must be the mean of the losses of its frames, each in a batch of its own.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_batch_loss_is_the_mean_of_single_losses(submission: Submission, rng: Rng) -> None:
    batch, seed = random_batch(rng, 4), rng.seed()
    single = [
        submission.observe(
            "loss_and_action", batch={name: value[i : i + 1] for name, value in batch.items()}, seed=seed
        )
        for i in range(4)
    ]
    together = submission.observe("loss_and_action", batch=batch, seed=seed)
    expect(together["loss"], "the loss of 4 frames").close_to(
        sum(float(one["loss"]) for one in single) / 4, rtol=1e-4, atol=1e-5
    )


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the motion and the gripper's command.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    batch, seed = batch_with_few_grasps(rng, 3), rng.seed()
    action = submission.observe("loss_and_action", batch=batch, seed=seed)["action"]
    expect(action, "the action chunk").has_shape(3, HORIZON, 3)
    for name, other in (
        ("pixel_values", batch["pixel_values"].flip(0)),
        ("input_ids", batch["input_ids"].roll(1, dims=0)),
    ):
        moved = submission.observe("loss_and_action", batch={**batch, name: other}, seed=seed)["action"]
        expect(moved[..., :2], f"the motion under another {name}").differs_from(action[..., :2])
        expect(moved[..., 2], f"the gripper's command under another {name}").differs_from(action[..., 2])


@check(
    kind="invariant",
    title="Padded steps do not count in the loss",
    property="The actions in the padded steps of a chunk, after the episode's end, must not change the loss.",
    instrument="debugkit.check(policy, batch, select=['DK303'])",
)
def test_padded_steps_do_not_count(submission: Submission, rng: Rng) -> None:
    batch, seed = batch_with_few_grasps(rng, 5), rng.seed()
    loss = submission.observe("loss_and_action", batch=batch, seed=seed)["loss"]
    noise = rng.normal(5, HORIZON, 3) * batch["action_is_pad"][..., None]
    changed = submission.observe("loss_and_action", batch={**batch, "action": batch["action"] + noise}, seed=seed)[
        "loss"
    ]
    expect(changed, "the loss with other padded steps").close_to(loss)


@check(
    kind="invariant",
    title="Every parameter is trained",
    property="One backward pass must give every parameter of the policy a gradient, both heads included.",
    instrument="debugkit.find_graph_cut(policy, batch)",
)
def test_every_parameter_gets_a_gradient(submission: Submission, rng: Rng) -> None:
    norms = submission.observe("gradients", batch=batch_with_few_grasps(rng, 6), seed=rng.seed())
    expect(
        sorted(name for name, norm in norms.items() if norm < 0), "the list of parameters without a gradient"
    ).equals([])
    heads = [norm for name, norm in norms.items() if name.startswith("head.") and name.endswith("weight")]
    expect(len(heads), "the number of weights in the head").at_least(4)
    expect(heads, "the gradient norm of each weight in the head").above(1e-6)


@check(
    kind="outcome",
    title="The gripper can overfit one batch",
    property=f"After {OVERFIT_STEPS} steps on 32 frames, the gripper's commands must be the expert's.",
    instrument="debugkit.overfit_one_batch(policy, batch)",
)
def test_gripper_overfits_one_batch(submission: Submission, seed: int) -> None:
    after = submission.observe("commands_after_overfitting", seed=seed, steps=OVERFIT_STEPS)
    expect(after["target"].unique().tolist(), "the expert's commands").equals([-1.0, 1.0])
    expect((after["command"] - after["target"]).square().mean(), "the gripper's mean squared error").below(OVERFIT_BAR)


@check(
    kind="outcome",
    title="The robot grasps the named block",
    property=f"After a short fine-tuning, at least {SUCCESS_BAR:.0%} of {EPISODES} episodes on fresh tables must end at the named block.",
    instrument="lab run 03",
)
def test_robot_grasps(submission: Submission, seed: int) -> None:
    result = submission.observe("trained_rollout", seed=seed, episodes=EPISODES)
    expect_success_rate(result["success"], episodes=EPISODES, at_least=SUCCESS_BAR)


@wrong_fix(
    "compare_means",
    says="This compares the mean command with the mean target: every frame may be wrong as long as the average is right.",
)
def recognise_means(evidence: Mapping[str, Any]) -> bool:
    return "means" in evidence["test_loss_equals_the_reference/formula"]


@wrong_fix(
    "average_over_targets",
    says="This averages the (B, B) errors over the targets before squaring: every frame is compared with the batch's mean target, not with its own.",
)
def recognise_average(evidence: Mapping[str, Any]) -> bool:
    return "mean target" in evidence["test_loss_equals_the_reference/formula"]


@wrong_fix(
    "first_row_only",
    says="This keeps B of the B × B errors, but the wrong ones: the first frame's command is compared with every target, and no other command gets a loss.",
)
def recognise_first_row(evidence: Mapping[str, Any]) -> bool:
    return "first command" in evidence["test_loss_equals_the_reference/formula"]


@wrong_fix(
    "expand_target",
    says="The two shapes are now equal, but the loss has not changed: it is still the mean over every pair of frames. Compare each command with its own target only.",
)
def recognise_expanded(evidence: Mapping[str, Any]) -> bool:
    return "every pair" in evidence["test_loss_equals_the_reference/formula"] and not any(
        sorted(map(len, pair)) == [1, 2] for pair in evidence["operands"]
    )


@wrong_fix(
    "weights_against_every_frame",
    says="Each command is now compared with its own target. But then a column of errors (B, 1) is multiplied by a row of weights (B,): the same mistake, one line further down.",
)
def recognise_weights_of_every_frame(evidence: Mapping[str, Any]) -> bool:
    return "every weight" in evidence["test_loss_equals_the_reference/formula"]


@wrong_fix(
    "weights_dropped",
    says="The pairing is correct, but the weights are gone: a frame in which the expert stays open must count one and a half times.",
)
def recognise_no_weights(evidence: Mapping[str, Any]) -> bool:
    return evidence["test_loss_equals_the_reference/formula"] == "no weights"


@wrong_fix(
    "divided_by_the_weights",
    says="The pairing is correct, but this divides by the sum of the weights, not by the number of frames: a frame's loss now depends on its neighbours' weights.",
)
def recognise_division(evidence: Mapping[str, Any]) -> bool:
    return evidence["test_loss_equals_the_reference/formula"] == "divided by the weights"


@wrong_fix(
    "louder_gripper",
    says="This only scales the same mistake: the gripper's loss grew by a factor and still compares every pair of frames.",
)
def recognise_louder(evidence: Mapping[str, Any]) -> bool:
    return "times" in evidence["test_loss_equals_the_reference/formula"]


def batch_with_few_grasps(rng: Rng, size: int) -> dict[str, Tensor]:
    """A batch with fewer grasps, in which later steps may be padded; the first step never is."""
    batch = padded_batch(rng, size)
    batch["action"][..., 2] = 2.0 * rng.boolean(size, HORIZON, probability=0.3).float() - 1
    return batch


def motion_loss(action: Tensor, batch: dict[str, Tensor]) -> float:
    """The reference motion loss, from predicted actions in metres."""
    predicted, target = action[..., :2].double() / MOTION_STD, batch["action"][..., :2].double() / MOTION_STD
    error = F.smooth_l1_loss(predicted, target, beta=0.1, reduction="none").mean(dim=-1)  # (B, H)
    return float(error[~batch["action_is_pad"]].mean())


def gripper_loss(command: Tensor, target: Tensor) -> float:
    """The reference gripper loss."""
    return float((weights(target) * (command.double() - target) ** 2).mean())


def formula(measured: float, command: Tensor, target: Tensor) -> str:
    """Which formula explains a measured gripper loss. The frames must differ, so that no two formulas agree."""
    weight, command, target = weights(target), command.double(), target.double()
    pairs = float((weight * (command[:, None] - target) ** 2).mean())
    candidates = {
        "each frame against its own target": gripper_loss(command, target),
        "every pair of frames": pairs,
        "the two means": float((weight * (command.mean() - target.mean()) ** 2).mean()),
        "each frame against the mean target": float((weight * (command - target.mean()) ** 2).mean()),
        "the first command against every target": float((weight * (command[0] - target) ** 2).mean()),
        "each error under every weight": float((weight * ((command - target) ** 2)[:, None]).mean()),
        "no weights": float(((command - target) ** 2).mean()),
        "divided by the weights": float((weight * (command - target) ** 2).sum() / weight.sum()),
    }
    for name, value in candidates.items():
        if abs(measured - value) <= 1e-4 * abs(value) + 1e-5:
            return name
    factor = measured / pairs
    return f"{factor:.0f} times every pair" if factor > 1.5 and abs(factor - round(factor)) < 1e-3 else "another"


def grasp_target(batch: dict[str, Tensor]) -> Tensor:
    """What the expert's gripper does within the executed steps, -1 or +1, (B,)."""
    gripper = batch["action"][..., 2].masked_fill(batch["action_is_pad"], -1.0)
    return gripper[:, :EXECUTED_STEPS].amax(dim=1)


def weights(target: Tensor) -> Tensor:
    """A frame in which the expert stays open weighs one and a half times one in which it closes."""
    return torch.where(target > 0, 1.0, OPEN_WEIGHT).double()
