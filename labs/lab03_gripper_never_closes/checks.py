"""What must hold for a policy with a separate gripper head. Runs in the grader's process; never sees the learner's code.

The reference is written from the docstrings of policy.py: motions in units of their standard deviation under a smooth L1, and
one weighted squared error for each frame.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import HORIZON, PARTS, expect_success_rate, padded_batch, random_batch
from labs.vla.heads import ActionHead
from labs.vla.normalization import TABLETOP_STD
from labs.vla.policy import OBSERVATION_KEYS, Policy

EXECUTED_STEPS = 2
MOTION_STD = TABLETOP_STD[0]
OPEN_WEIGHT = 1.5
FAR = 4.0
"""Factor on the weights of both heads. It moves commands and normalised motions out of the range from -1 to +1."""
CLOSE = 3e-5
MODES = ("evaluation", "training")

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
    situations = ((17, FAR), (9, 1.0), (2, FAR), (rng.integer(3, 8), FAR), (1, 1.0))
    measured, wanted, multiples = [], [], []
    for size, factor in situations:
        batch, seed = batch_with_few_grasps(rng, size), rng.seed()
        seen = submission.observe("losses", batch=batch, seed=seed, factor=factor)
        motion, command = predicted(batch, seed, factor)
        target, of_motion = grasp_target(batch), float(motion_error(motion, batch))
        of_gripper = [float(seen[mode]) - of_motion for mode in MODES]
        if not measured:
            expect([formula(loss, command, target) for loss in of_gripper], "formulas")
            submission.observe("operands", batch=batch, seed=seed)
        multiples += [loss / every_pair(command, target) for loss in of_gripper]
        measured.append(seen)
        wanted.append(torch.tensor(of_motion + float(gripper_error(command, target))))
    expect(multiples, "multiples of every pair")
    for (size, _), seen, loss in zip(situations, measured, wanted, strict=True):
        for mode in MODES:
            name = f"the loss of {size} frame{'s' * (size > 1)} in {mode} mode"
            expect(seen[mode], name).close_to(loss, rtol=CLOSE, atol=CLOSE)


@check(
    kind="invariant",
    title="The chunk is what both heads predict from the image and the instruction",
    property="The chunk must be the motions in metres with the one gripper command at every step, also beyond -1 and +1, as the same weights predict them.",
    instrument="lab run 03",
)
def test_chunk_equals_the_reference(submission: Submission, rng: Rng) -> None:
    for size, factor in ((3, 1.0), (1, 1.0), (5, FAR)):
        batch, seed = random_batch(rng, size), rng.seed()
        action = submission.observe("action", batch=batch, seed=seed, factor=factor)
        motion, command = predicted(batch, seed, factor)
        expect(action, f"the chunk of {size} frame{'s' * (size > 1)}").has_shape(size, HORIZON, 3)
        expect(action[..., :2], "the motion").close_to(motion.float(), rtol=1e-4, atol=1e-5)
        expect(action[..., 2], "the gripper's command").close_to(
            command.float()[:, None].expand(-1, HORIZON), rtol=1e-4, atol=1e-5
        )


@check(
    kind="invariant",
    title="Padded steps do not count in the loss",
    property="The actions in the padded steps of a chunk, after the episode's end, must not change the loss.",
    instrument="debugkit.check(policy, batch, select=['DK303'])",
)
def test_padded_steps_do_not_count(submission: Submission, rng: Rng) -> None:
    batch, seed = batch_with_few_grasps(rng, 5), rng.seed()
    batch["action_is_pad"][0] = torch.arange(HORIZON) > 0
    noise = rng.normal(5, HORIZON, 3) * batch["action_is_pad"][..., None]
    other = {**batch, "action": batch["action"] + noise}
    loss, changed = (submission.observe("losses", batch=one, seed=seed) for one in (batch, other))
    for mode in MODES:
        expect(changed[mode], f"the loss in {mode} mode, with other actions in the padded steps,").close_to(loss[mode])


@check(
    kind="invariant",
    title="Every parameter is trained",
    property="One backward pass must give every parameter of the policy a gradient, and every part of it the gradient of both losses.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_every_parameter_gets_a_gradient(submission: Submission, rng: Rng) -> None:
    batch, seed = batch_with_few_grasps(rng, 6), rng.seed()
    norms = submission.observe("gradients", batch=batch, seed=seed)
    without = sorted(name for name, norm in norms.items() if norm < 0)
    expect(", ".join(without) or "none", "the list of parameters without a gradient").equals("none")
    wanted = by_part(reference_gradients(batch, seed))
    found = by_part(norms)
    for part in PARTS:
        expect(found.get(part), f"the norm of the gradient of the part {part}").close_to(wanted[part], rtol=1e-3)


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
    return evidence[FORMULAS] == ["the two means"] * 2


@wrong_fix(
    "average_over_targets",
    says="This averages the (B, B) errors over the targets before squaring: every frame is compared with the batch's mean target, not with its own.",
)
def recognise_average(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULAS] == ["each frame against the mean target"] * 2


@wrong_fix(
    "first_row_only",
    says="This keeps B of the B × B errors, but the wrong ones: the first frame's command is compared with every target, and no other command gets a loss.",
)
def recognise_first_row(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULAS] == ["the first command against every target"] * 2


@wrong_fix(
    "expand_target",
    says="The two shapes are now equal, but the loss has not changed: it is still the mean over every pair of frames. Compare each command with its own target only.",
)
def recognise_expanded(evidence: Mapping[str, Any]) -> bool:
    pairs = [pair for name, *pair in evidence[OPERANDS] if name == "subtraction"]
    of_equal_shape = any(left == right and len(left) == 2 and left[0] == left[1] for left, right in pairs)
    column_and_row = any(sorted(map(len, pair)) == [1, 2] for pair in pairs)
    return evidence[FORMULAS] == ["every pair of frames"] * 2 and of_equal_shape and not column_and_row


@wrong_fix(
    "weights_against_every_frame",
    says="Each command is now compared with its own target. But then a column of errors (B, 1) is multiplied by a row of weights (B,): the same mistake, one line further down.",
)
def recognise_weights_of_every_frame(evidence: Mapping[str, Any]) -> bool:
    products = [pair for name, *pair in evidence[OPERANDS] if name == "multiplication"]
    column_times_row = any(sorted(map(len, pair)) == [1, 2] for pair in products)
    return evidence[FORMULAS] == ["each error under every weight"] * 2 and column_times_row


@wrong_fix(
    "weights_dropped",
    says="The pairing is correct, but the weights are gone: a frame in which the expert stays open must count one and a half times.",
)
def recognise_no_weights(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULAS] == ["no weights"] * 2


@wrong_fix(
    "divided_by_the_weights",
    says="The pairing is correct, but this divides by the sum of the weights, not by the number of frames: a frame's loss now depends on its neighbours' weights.",
)
def recognise_division(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULAS] == ["divided by the weights"] * 2


@wrong_fix(
    "louder_gripper",
    says="This only scales the same mistake: the gripper's loss grew by a factor and still compares every pair of frames.",
)
def recognise_louder(evidence: Mapping[str, Any]) -> bool:
    multiples = evidence["test_loss_equals_the_reference/multiples of every pair"]
    return min(multiples) > 1.01 and max(multiples) < 1.01 * min(multiples)


FORMULAS = "test_loss_equals_the_reference/formulas"
OPERANDS = "test_loss_equals_the_reference/operands"


class Reference(Policy):
    """The policy that policy.py describes: its two heads, initialised in the order in which they are written there."""

    def build_head(self) -> ActionHead:
        return Heads(self.config.width, self.config.horizon, self.config.action_dim)


class Heads(ActionHead):
    """Normalised motions (B, H, 2) and one command for each frame (B,)."""

    def __init__(self, width: int, horizon: int, action_dim: int) -> None:
        super().__init__(horizon, action_dim)
        self.motion = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, horizon * 2))
        self.gripper = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, feature: Tensor) -> tuple[Tensor, Tensor]:
        return self.motion(feature).view(-1, HORIZON, 2), self.gripper(feature)[:, 0]


def from_reference(policy: Reference, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Motions in metres (B, H, 2) and commands (B,), both in float64."""
    motion, command = policy.head(policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS}))
    return motion.double() * MOTION_STD, command.double()


@torch.no_grad()
def predicted(batch: dict[str, Tensor], seed: int, factor: float) -> tuple[Tensor, Tensor]:
    """What the policy of that seed must predict, with the parameters of both heads multiplied by `factor`."""
    policy = Reference.from_base(seed=seed)
    for parameter in policy.head.parameters():
        parameter.mul_(factor)
    return from_reference(policy, batch)


def reference_gradients(batch: dict[str, Tensor], seed: int) -> dict[str, float]:
    """The norm of each parameter's gradient, as the reference loss gives it."""
    policy = Reference.from_base(seed=seed)
    motion, command = from_reference(policy, batch)
    (motion_error(motion, batch) + gripper_error(command, grasp_target(batch))).backward()
    return {
        name: float(parameter.grad.norm())
        for name, parameter in policy.named_parameters()
        if parameter.grad is not None
    }


def by_part(norms: Mapping[str, float]) -> dict[str, float]:
    """The norm of each part of the policy, such as the head, from those of its parameters."""
    parts: dict[str, float] = {}
    for name, norm in norms.items():
        part = name.partition(".")[0]
        parts[part] = math.hypot(parts.get(part, 0.0), norm)
    return parts


def batch_with_few_grasps(rng: Rng, size: int) -> dict[str, Tensor]:
    """A batch with fewer grasps, in which later steps may be padded; the first step never is."""
    batch = padded_batch(rng, size)
    batch["action"][..., 2] = 2.0 * rng.boolean(size, HORIZON, probability=0.3).float() - 1
    return batch


def motion_error(motion: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """The reference motion loss, from motions in metres."""
    target = batch["action"][..., :2].double()
    error = F.smooth_l1_loss(motion / MOTION_STD, target / MOTION_STD, beta=0.1, reduction="none").mean(
        dim=-1
    )  # (B, H)
    return error[~batch["action_is_pad"]].mean()


def gripper_error(command: Tensor, target: Tensor) -> Tensor:
    """The reference gripper loss."""
    return (weights(target) * (command - target) ** 2).mean()


def every_pair(command: Tensor, target: Tensor) -> float:
    """The starter's gripper loss."""
    return float((weights(target) * (command[:, None] - target) ** 2).mean())


def formula(measured: float, command: Tensor, target: Tensor) -> str:
    """The one formula that explains a measured gripper loss, or "another"."""
    weight = weights(target)
    candidates = {
        "each frame against its own target": float(gripper_error(command, target)),
        "every pair of frames": every_pair(command, target),
        "the two means": float((weight * (command.mean() - target.mean()) ** 2).mean()),
        "each frame against the mean target": float((weight * (command - target.mean()) ** 2).mean()),
        "the first command against every target": float((weight * (command[0] - target) ** 2).mean()),
        "each error under every weight": float(weight.mean() * ((command - target) ** 2).mean()),
        "no weights": float(((command - target) ** 2).mean()),
        "divided by the weights": float((weight * (command - target) ** 2).sum() / weight.sum()),
    }
    found = [name for name, value in candidates.items() if abs(measured - value) <= CLOSE * (abs(value) + 1)]
    return found[0] if len(found) == 1 else "another"


def grasp_target(batch: dict[str, Tensor]) -> Tensor:
    """What the expert's gripper does within the executed steps, -1 or +1, (B,)."""
    gripper = batch["action"][..., 2].masked_fill(batch["action_is_pad"], -1.0)
    return gripper[:, :EXECUTED_STEPS].amax(dim=1)


def weights(target: Tensor) -> Tensor:
    """A frame in which the expert stays open weighs one and a half times one in which it closes."""
    return torch.where(target > 0, 1.0, OPEN_WEIGHT).double()
