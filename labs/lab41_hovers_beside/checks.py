"""Requirements for actions normalised by bounds. Runs in the grader's process; judges data, and never sees the code.

The reference follows the docstrings of policy.py: the 1st and 99th percentile map to [-1, 1], the gripper is unchanged, and values
outside the bounds are clipped. The demonstrations drawn here are asymmetric on purpose: with symmetric bounds, several wrong formulas
give correct numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from labs.demonstrated_actions import demonstrations
from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import (
    TOLERANCE,
    close,
    expect_equal,
    expect_image_and_instruction_to_matter,
    expect_success_rate,
    listed,
    random_batch,
    random_padding,
)
from labs.policy_comparison import encoded, expect_gradients_of, with_louder_head
from labs.vla.dataset import demonstrations as tabletop_demonstrations
from labs.vla.heads import mean_over_steps
from labs.vla.policy import Policy

HORIZON = 4
NORMALISED = (True, True, False)
LOUD = 100.0
"""Factor on a fresh last layer. Errors are then much larger than 1, and most actions outside of the bounds."""
CENTIMETRES = 100.0
TWO_MILLIMETRES = 0.02
"""Times the usual range, which is about a decimetre."""
ROUNDING = 1e-5
"""In metres."""
EPISODES = 50
SUCCESS_BAR = 0.8


@check(
    kind="behaviour",
    title="Actions survive the round trip",
    property="Inside the bounds, unnormalise(normalise(action)) must equal the action and normalise(unnormalise(x)) must equal x; values outside must be clipped; for ranges of decimetres and of a few millimetres. The gripper must not change.",
    instrument="debugkit.check(policy, batch, select=['DK401'])",
)
def test_round_trip(submission: Submission, rng: Rng) -> None:
    trips = []
    for case, unit, shape, grips in (
        ("first", 1.0, (rng.integer(5, 40),), True),
        ("second", 1.0, (3, 5), True),
        ("third", CENTIMETRES, (), False),
        ("fourth", TWO_MILLIMETRES, (4,), True),
    ):
        demos = lopsided_demonstrations(rng, 300, unit=unit, grips=grips)
        low, high = bounds(demos)
        action = low + rng.uniform(*shape, 3) * (high - low)
        action[..., 2:] = rng.uniform(*shape, 1, low=-2.0, high=2.0)
        normalised = rng.uniform(*shape, 3, low=-1.0, high=1.0)
        outside = rng.uniform(*shape, 3, low=1.2, high=3.0) * torch.where(rng.boolean(*shape, 3), 1.0, -1.0)
        far = submission.observe("round_trip", **demos, action=action, normalised=outside)["unnormalised"]
        seen = submission.observe("round_trip", **demos, action=action, normalised=normalised)
        expect(seen["unnormalised"], "the unnormalised values").has_shape(*normalised.shape)
        expect(constant(seen["unnormalised"], normalised, low, high).tolist(), f"what is added to the {case} range")
        if case == "first":
            expect(explain(seen["unnormalised"], normalised, low, high), "formula")
            expect(close(seen["normalised"][..., :2], ((action - low) / (high - low))[..., :2]), "on [0, 1]")
        units = {CENTIMETRES: "in centimetres", TWO_MILLIMETRES: "with a range of a few millimetres"}
        of = f"(actions of shape {list(action.shape)}, {units.get(unit, 'in metres')})"
        trips += [
            (seen["returned"], action, f"after normalise and unnormalise {of}"),
            (seen["normalised_again"], normalised, f"after unnormalise and normalise {of}"),
            (far, unnormalise(outside, low, high), f"that unnormalise makes of values outside [-1, 1] {of}"),
        ]
    for found, wanted, what in trips:
        expect_equal(found[..., :2], wanted[..., :2], f"the movements {what}")
        expect_equal(found[..., 2], wanted[..., 2], f"the gripper {what}")


@check(
    kind="behaviour",
    title="The robot executes the head's output",
    property="The executed chunk must be the head's output, mapped from [-1, 1] to the bounds and clipped to them, with the gripper unchanged.",
    instrument="python -c 'from policy import *; n = BoundsNormaliser(3); print(n.unnormalise(torch.tensor([-1.0, 1.0, 2.0])))'",
)
def test_executed_action(submission: Submission, rng: Rng) -> None:
    for size, louder in ((1, LOUD), (rng.integer(2, 9), 1.0)):
        batch, seed = lopsided_batch(rng, size), rng.seed()
        executed = submission.observe("loss_and_action", batch=batch, seed=seed, louder=louder)["executed"]
        wanted = unnormalise(
            head_output(with_louder_head(Policy.from_base(seed=seed), louder), batch).detach(), *bounds_of(batch)
        )
        expect(executed, "the executed chunk").has_shape(*wanted.shape)
        for dimension, name in enumerate(("dx", "dy", "gripper")):
            expect_equal(executed[..., dimension], wanted[..., dimension], f"the executed {name}")


@check(
    kind="invariant",
    title="Normalised actions are in [-1, 1]",
    property="normalise must map the bounds to -1 and 1, clip values outside, and leave the gripper unchanged.",
    instrument="debugkit.check(policy, batch, select=['DK402'])",
)
def test_normalised_range(submission: Submission, rng: Rng) -> None:
    for grips in (True, False):
        demos = lopsided_demonstrations(rng, 300, grips=grips)
        low, high = bounds(demos)
        action = torch.stack([low, high, low - 0.05, high + 0.05, (low + high) / 2, *demos["demonstrated"][:5, 0]])
        action[:, 2] = rng.uniform(10, low=-2.0, high=2.0)
        seen = submission.observe("round_trip", **demos, action=action, normalised=torch.zeros(1, 3))["normalised"]
        wanted = normalise(action, low, high)
        expect(seen, "the normalised actions").has_shape(*wanted.shape)
        for number, what in enumerate(("the lower bound", "the upper bound", "below both", "above both")):
            expect_equal(seen[number, :2], wanted[number, :2], f"the normalised movement at {what}")
        expect_equal(seen[..., :2], wanted[..., :2], "the normalised movements")
        some = "both commands" if grips else "the open gripper only"
        expect_equal(seen[..., 2], wanted[..., 2], f"the normalised gripper, demonstrated with {some},")


@check(
    kind="invariant",
    title="The loss compares normalised actions",
    property="The loss must be the smooth L1 between the head's output and the normalised actions, over the steps that are not padding, and its gradient must reach every parameter.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_loss_is_unchanged(submission: Submission, rng: Rng) -> None:
    trained = []
    for size, louder in ((1, LOUD), (rng.integer(3, 9), 1.0)):
        batch, seed = lopsided_batch(rng, size), rng.seed()
        seen = submission.observe("loss_and_action", batch=batch, seed=seed, louder=louder)
        policy = with_louder_head(Policy.from_base(seed=seed), louder)
        loss = reference_loss(policy, batch)
        loss.backward()
        expect(float(seen["loss"] / loss.detach()), "factor of one frame" if size == 1 else "factor")
        trained.append((f"{size} frame{'s' * (size > 1)}", seen, policy, loss))
    for frames, seen, policy, loss in trained:
        expect_equal(seen["loss"], loss.detach(), f"the loss of {frames}")
        expect_gradients_of(policy, seen["gradients"], f"of {frames}")


@check(
    kind="invariant",
    title="Policy and checkpoints have the demonstrations' bounds",
    property="`build_policy` must use the pretrained base, a head drawn from the seed, and the bounds of its demonstrations. A normaliser that loads a checkpoint must use the bounds and the mask in it, in both directions.",
    instrument="python -c 'from policy import *; print(BoundsNormaliser(3).state_dict())'",
)
def test_bounds_are_saved(submission: Submission, rng: Rng) -> None:
    count, seed = rng.integer(200, 300), rng.integer(300, 1000)
    normalised = rng.uniform(7, 3, low=-2.0, high=2.0)
    seen = submission.observe("built", count=count, seed=seed, normalised=normalised)
    weights = Policy.from_base(seed=seed).state_dict()
    expect(listed(weights.keys() ^ seen["weights"].keys()), "what the policy lacks or has too many").equals("nothing")
    other = {name for name, value in weights.items() if not torch.equal(seen["weights"][name], value)}
    expect(listed(other), "what differs from the base, or from a head drawn from the seed").equals("nothing")
    frames = tabletop_demonstrations(count, seed)
    arrays = {"demonstrated": frames.action, "action_is_pad": frames.action_is_pad}
    low, high = bounds({name: torch.from_numpy(array) for name, array in arrays.items()})
    expect_equal(seen["unnormalised"], unnormalise(normalised, low, high), "the actions of `build_policy`'s policy")

    demos = lopsided_demonstrations(rng, 300)
    low, high = bounds(demos)
    for mask in ((True, True, False), (True, True, True), (False, True, True), (True, False, False)):
        if mask[2]:
            low[2], high[2] = -0.4, 0.7
        checkpoint = {"low": low, "high": high, "mask": torch.tensor(mask)}
        action = demos["demonstrated"][:7, 0]
        seen = submission.observe("loaded", checkpoint=checkpoint, action=action, normalised=normalised)
        expect(listed(checkpoint.keys() ^ seen["saved"].keys()), "what a checkpoint lacks or has too many").equals(
            "nothing"
        )
        after = f"after loading a checkpoint with the mask {list(mask)}"
        expect_equal(seen["normalised"], normalise(action, low, high, mask), f"the normalised actions {after}")
        expect_equal(
            seen["unnormalised"], unnormalise(normalised, low, high, mask), f"the unnormalised actions {after}"
        )


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change what the robot executes.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng, batch=lopsided_batch(rng, 3))


@check(
    kind="outcome",
    title="The robot reaches and grasps the named block",
    property=f"After a short fine-tuning, at least {SUCCESS_BAR:.0%} of {EPISODES} episodes on new tables must end with a grasp of the named block.",
    instrument="lab run 41",
)
def test_robot_grasps(submission: Submission, seed: int) -> None:
    result = submission.observe("trained_rollout", seed=seed, episodes=EPISODES)
    expect_success_rate(result["success"], episodes=EPISODES, at_least=SUCCESS_BAR)


TRIP, LOSS = "test_round_trip", "test_loss_is_unchanged"
AS_SHIPPED = "as from [0, 1]"


@wrong_fix(
    "hand_tuned_offset",
    says="This cancels this robot's drift with a constant and does not change the scale: every movement is still twice as large as demonstrated.",
)
def recognise_offset(evidence: Mapping[str, Any]) -> bool:
    first, second = (evidence[f"{TRIP}/what is added to the {case} range"] for case in ("first", "second"))
    same = all(abs(one - other) < ROUNDING for one, other in zip(first, second, strict=True))
    return same and any(abs(one) > ROUNDING for one in first)


@wrong_fix(
    "half_the_range",
    says="The scale is correct, but the middle is not: this maps 0 to zero movement, which is the middle of the bounds only if they are symmetric. These are not.",
)
def recognise_half(evidence: Mapping[str, Any]) -> bool:
    return evidence[f"{TRIP}/formula"] == "half the range, no middle"


@wrong_fix(
    "clamp_to_unit",
    says="This clamps the prediction to [0, 1], the range that unnormalise expects, but normalise maps to [-1, 1]: every movement in the lower half of the bounds becomes the lower bound.",
)
def recognise_clamp(evidence: Mapping[str, Any]) -> bool:
    return evidence[f"{TRIP}/formula"] == "clamped to [0, 1]"


@wrong_fix(
    "normalise_to_unit",
    says="The two directions agree now, but on [0, 1]: movements have half of the gripper's range, so they count less in the loss, and older checkpoints no longer fit.",
)
def recognise_unit(evidence: Mapping[str, Any]) -> bool:
    return evidence[f"{TRIP}/formula"] == AS_SHIPPED and evidence[f"{TRIP}/on [0, 1]"] is True


@wrong_fix(
    "scale_the_loss",
    says="The loss is now a multiple of what it was. But it was never wrong: the head's output is correct, the fault is in what is done with it.",
)
def recognise_scaled_loss(evidence: Mapping[str, Any]) -> bool:
    one, several = evidence[f"{LOSS}/factor of one frame"], evidence[f"{LOSS}/factor"]
    multiple = abs(one - several) < TOLERANCE * several and abs(several - 1) > 0.01
    return evidence[f"{TRIP}/formula"] == AS_SHIPPED and multiple


def lopsided_demonstrations(rng: Rng, count: int, *, unit: float = 1.0, grips: bool = True) -> dict[str, Tensor]:
    """Demonstrated actions (N, H, 3) that go further in one direction than in the other, and their padding (N, H).

    The movements are in metres divided by `unit`. Without `grips` the gripper is always open.
    """
    low, reach = -rng.uniform(3, low=0.01, high=0.04), rng.uniform(3, low=0.06, high=0.1)
    action = unit * (low + rng.uniform(count, HORIZON, 3) * (reach - low))
    action[..., 2] = 2.0 * rng.boolean(count, HORIZON, probability=0.3 if grips else 0.0) - 1
    return demonstrations(rng, action)


def bounds(demos: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The 1st and 99th percentile of the steps that are not padding, (A,) each."""
    steps = demos["demonstrated"][~demos["action_is_pad"]]
    return steps.quantile(0.01, dim=0), steps.quantile(0.99, dim=0)


def bounds_of(batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The bounds of a batch's own actions."""
    return bounds({"demonstrated": batch["action"], "action_is_pad": batch["action_is_pad"]})


def normalise(action: Tensor, low: Tensor, high: Tensor, mask: Sequence[bool] = NORMALISED) -> Tensor:
    """The reference for `normalise`."""
    scaled = 2 * (action.clamp(low, high) - low) / (high - low) - 1
    return torch.where(torch.tensor(mask), scaled, action)


def unnormalise(normalised: Tensor, low: Tensor, high: Tensor, mask: Sequence[bool] = NORMALISED) -> Tensor:
    """The reference for `unnormalise`."""
    scaled = low + (normalised.clamp(-1, 1) + 1) / 2 * (high - low)
    return torch.where(torch.tensor(mask), scaled, normalised)


def head_output(policy: Policy, batch: Mapping[str, Tensor]) -> Tensor:
    """The normalised chunk (B, H, A) that a policy's head predicts."""
    return policy.head.predict(encoded(policy, batch))


def reference_loss(policy: Policy, batch: Mapping[str, Tensor]) -> Tensor:
    """The loss of a policy's head with the batch's own bounds."""
    target = normalise(batch["action"], *bounds_of(batch))
    error = F.smooth_l1_loss(head_output(policy, batch), target, beta=0.1, reduction="none")
    return mean_over_steps(error.mean(dim=-1), batch["action_is_pad"])


def constant(given: Tensor, normalised: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """What is added to the movements of the shipped formula, (2,), if it is the same for every value; else zeros."""
    added = (given - normalised * (high - low) - low).reshape(-1, 3)[:, :2]
    return torch.where((added - added[0]).abs().amax(dim=0) < ROUNDING, added.mean(dim=0), 0.0)


def explain(given: Tensor, normalised: Tensor, low: Tensor, high: Tensor) -> str:
    """The formula that maps the normalised movements to `given`, in words."""
    x, low, high = normalised[:, :2].double(), low[:2].double(), high[:2].double()
    span = high - low
    candidates = {
        AS_SHIPPED: low + x * span,
        "half the range, no middle": x * span / 2,
        "clamped to [0, 1]": low + x.clamp(0, 1) * span,
    }
    for name, value in candidates.items():
        if torch.allclose(given[:, :2].double(), value, rtol=1e-4, atol=1e-6):
            return name
    return "another"


def lopsided_batch(rng: Rng, size: int) -> dict[str, Tensor]:
    """A batch with asymmetric actions and far-off padding; the first step is never padded."""
    batch = random_batch(rng, size)
    batch["action"] = lopsided_demonstrations(rng, size)["demonstrated"]
    batch["action_is_pad"] = random_padding(rng, size)
    batch["action_is_pad"][0] = torch.tensor([False, False, False, True])
    return batch
