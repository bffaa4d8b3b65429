"""Requirements for actions normalised by bounds. Runs in the grader's process; judges data, and never sees the code.

The reference follows the docstrings of policy.py: the 1st and 99th percentile map to [-1, 1], the gripper is unchanged, and values
outside the bounds are clipped. The demonstrations drawn here are asymmetric on purpose: with symmetric bounds, several wrong formulas
give correct numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_success_rate, random_batch

HORIZON = 4
EPISODES = 50
SUCCESS_BAR = 0.8


@check(
    kind="behaviour",
    title="Actions survive the round trip",
    property="Inside the bounds, unnormalise(normalise(action)) must equal the action and normalise(unnormalise(x)) must equal x; values outside must be clipped.",
    instrument="debugkit.check(policy, batch, select=['DK401'])",
)
def test_round_trip(submission: Submission, rng: Rng) -> None:
    for count in (rng.integer(5, 40), 1):
        demos = lopsided_demonstrations(rng, 300)
        low, high = bounds(demos)
        inside = low + rng.uniform(count, 3) * (high - low)
        inside[:, 2] = 2.0 * rng.boolean(count) - 1
        normalised = rng.uniform(count, 3, low=-1.0, high=1.0)
        outside = torch.tensor([[-3.0, 3.0, -1.0], [1.5, -1.2, 1.0]])
        far = submission.observe("round_trip", **demos, action=inside, normalised=outside)["unnormalised"]
        seen = submission.observe("round_trip", **demos, action=inside, normalised=normalised)
        expect(explain(seen["unnormalised"], normalised, low, high), "formula")
        expect(seen["returned"], "the action after the round trip").close_to(inside, rtol=1e-5, atol=1e-6)
        expect(seen["normalised_again"], "the normalised action after the round trip").close_to(
            normalised, rtol=1e-5, atol=1e-5
        )
        expect(far, "unnormalise of values outside [-1, 1]").close_to(
            unnormalise(outside, low, high), rtol=1e-5, atol=1e-6
        )


@check(
    kind="behaviour",
    title="The robot executes the head's output",
    property="The executed chunk must be the head's output, mapped from [-1, 1] to the bounds and clipped to them, with the gripper unchanged.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_executed_action(submission: Submission, rng: Rng) -> None:
    for size in (1, rng.integer(2, 9)):
        batch = lopsided_batch(rng, size)
        seen = submission.observe("loss_and_action", batch=batch, seed=rng.seed())
        expect(seen["head"], "the head's output").has_shape(size, HORIZON, 3)
        low, high = bounds({"demonstrated": batch["action"], "action_is_pad": batch["action_is_pad"]})
        expect(seen["action"], "the executed chunk").close_to(
            unnormalise(seen["head"], low, high), rtol=1e-4, atol=1e-6
        )


@check(
    kind="invariant",
    title="Normalised actions are in [-1, 1]",
    property="normalise must map the bounds to -1 and 1, clip values outside, and leave the gripper unchanged.",
    instrument="debugkit.check(policy, batch, select=['DK402'])",
)
def test_normalised_range(submission: Submission, rng: Rng) -> None:
    demos = lopsided_demonstrations(rng, 300)
    low, high = bounds(demos)
    action = torch.stack([low, high, low - 0.05, high + 0.05, (low + high) / 2, *demos["demonstrated"][:5, 0]])
    action[:, 2] = torch.tensor([-1.0, 1.0] * 5)
    seen = submission.observe("round_trip", **demos, action=action, normalised=torch.zeros(1, 3))
    expect(seen["normalised"], "the normalised actions").close_to(normalise(action, low, high), rtol=1e-5, atol=1e-5)


@check(
    kind="invariant",
    title="The loss compares normalised actions",
    property="The loss must be the smooth L1 between the head's output and the normalised actions, over the steps that are not padding.",
    instrument="debugkit.check(policy, batch)",
)
def test_loss_is_unchanged(submission: Submission, rng: Rng) -> None:
    batch = lopsided_batch(rng, rng.integer(3, 9))
    seen = submission.observe("loss_and_action", batch=batch, seed=rng.seed())
    low, high = bounds({"demonstrated": batch["action"], "action_is_pad": batch["action_is_pad"]})
    wanted = reference_loss(seen["head"], batch, low, high)
    expect(float(seen["loss"]) / wanted, "factor")
    expect(seen["loss"], "the loss").close_to(wanted, rtol=1e-4, atol=1e-6)


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change what the robot executes.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    batch, seed = lopsided_batch(rng, 3), rng.seed()
    action = submission.observe("loss_and_action", batch=batch, seed=seed)["action"]
    for name, other in (
        ("pixel_values", batch["pixel_values"].flip(0)),
        ("input_ids", batch["input_ids"].roll(1, dims=0)),
    ):
        moved = submission.observe("loss_and_action", batch={**batch, name: other}, seed=seed)["action"]
        expect(moved[..., :2], f"the movement under another {name}").differs_from(action[..., :2])


@check(
    kind="outcome",
    title="The robot reaches and grasps the named block",
    property=f"After a short fine-tuning, at least {SUCCESS_BAR:.0%} of {EPISODES} episodes on new tables must end with a grasp of the named block.",
    instrument="lab run 41",
)
def test_robot_grasps(submission: Submission, seed: int) -> None:
    result = submission.observe("trained_rollout", seed=seed, episodes=EPISODES)
    expect_success_rate(result["success"], episodes=EPISODES, at_least=SUCCESS_BAR)


@wrong_fix(
    "hand_tuned_offset",
    says="This cancels the drift with a constant and does not change the scale: zero becomes zero, but every movement is twice as large as demonstrated.",
)
def recognise_offset(evidence: Mapping[str, Any]) -> bool:
    return evidence["test_round_trip/formula"] == "scale wrong by a factor of two, shifted"


@wrong_fix(
    "half_the_range",
    says="The scale is correct, but the middle is not: this maps 0 to zero movement, which is the middle of the bounds only if they are symmetric. These are not.",
)
def recognise_half(evidence: Mapping[str, Any]) -> bool:
    return evidence["test_round_trip/formula"] == "half the range, no middle"


@wrong_fix(
    "clamp_to_unit",
    says="This clamps the prediction to [0, 1], the range that unnormalise expects, but normalise maps to [-1, 1]: every movement in the lower half of the bounds becomes the lower bound.",
)
def recognise_clamp(evidence: Mapping[str, Any]) -> bool:
    return evidence["test_round_trip/formula"] == "clamped to [0, 1]"


@wrong_fix(
    "normalise_to_unit",
    says="The two directions agree now, but on [0, 1]: movements have half of the gripper's range, so they count less in the loss, and older checkpoints no longer fit.",
)
def recognise_unit(evidence: Mapping[str, Any]) -> bool:
    return (
        evidence["test_round_trip"]["outcome"] == "failed"
        and evidence["test_round_trip/formula"] == "as from [0, 1]"
        and float(evidence["test_round_trip/round_trip"]["normalised"][:, :2].min()) >= 0
        and evidence["test_normalised_range"]["outcome"] == "failed"
    )


@wrong_fix(
    "scale_the_loss",
    says="The loss is now a multiple of what it was. But it was never wrong: the head's output is correct, the fault is in what is done with it.",
)
def recognise_scaled_loss(evidence: Mapping[str, Any]) -> bool:
    factor = evidence["test_loss_is_unchanged/factor"]
    return (
        evidence["test_round_trip/formula"] == "as from [0, 1]" and factor > 1.5 and abs(factor - round(factor)) < 1e-3
    )


def lopsided_demonstrations(rng: Rng, count: int) -> dict[str, Tensor]:
    """Demonstrated actions (N, H, 3) that go further in one direction than in the other, and their padding (N, H)."""
    low, reach = -rng.uniform(3, low=0.01, high=0.04), rng.uniform(3, low=0.06, high=0.1)
    action = low + rng.uniform(count, HORIZON, 3) * (reach - low)
    action[..., 2] = 2.0 * rng.boolean(count, HORIZON, probability=0.3) - 1
    return {"demonstrated": action, "action_is_pad": rng.boolean(count, HORIZON, probability=0.2)}


def bounds(demos: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The 1st and 99th percentile of the steps that are not padding, (A,) each."""
    steps = demos["demonstrated"][~demos["action_is_pad"]]
    return steps.quantile(0.01, dim=0), steps.quantile(0.99, dim=0)


def normalise(action: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The reference for `normalise`."""
    scaled = 2 * (action.clamp(low, high) - low) / (high - low) - 1
    return torch.cat([scaled[..., :2], action[..., 2:]], dim=-1)


def unnormalise(normalised: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The reference for `unnormalise`."""
    scaled = low + (normalised.clamp(-1, 1) + 1) / 2 * (high - low)
    return torch.cat([scaled[..., :2], normalised[..., 2:]], dim=-1)


def reference_loss(head: Tensor, batch: dict[str, Tensor], low: Tensor, high: Tensor) -> float:
    """The reference for the loss, from the head's own output."""
    error = F.smooth_l1_loss(head.double(), normalise(batch["action"], low, high).double(), beta=0.1, reduction="none")
    return float(error.mean(dim=-1)[~batch["action_is_pad"]].mean())


def explain(given: Tensor, normalised: Tensor, low: Tensor, high: Tensor) -> str:
    """The formula that maps the normalised movements to `given`, in words."""
    x, low, high = normalised[:, :2].double(), low[:2].double(), high[:2].double()
    span = high - low
    candidates = {
        "the inverse": low + (x + 1) / 2 * span,
        "as from [0, 1]": low + x * span,
        "half the range, no middle": x * span / 2,
        "clamped to [0, 1]": low + x.clamp(0, 1) * span,
    }
    for name, value in candidates.items():
        if torch.allclose(given[:, :2].double(), value, rtol=1e-4, atol=1e-6):
            return name
    shift = given[:, :2].double() - x * span  # constant in each dimension if only the offset was tuned
    if len(x) > 1 and bool((shift - shift.mean(dim=0)).abs().max() < 1e-6):
        return "scale wrong by a factor of two, shifted"
    return "another"


def lopsided_batch(rng: Rng, size: int) -> dict[str, Tensor]:
    """A batch with asymmetric actions; the first step is never padded."""
    demos = lopsided_demonstrations(rng, size)
    demos["action_is_pad"][:, 0] = False
    return {**random_batch(rng, size), "action": demos["demonstrated"], "action_is_pad": demos["action_is_pad"]}
