"""Requirements for actions normalised by their range. Runs in the grader's process; judges data, and never sees the code.

The reference follows the docstrings of policy.py: the extremes of each dimension map to -1 and 1, and nothing is clipped. For a dimension
that never moves any mapping is accepted, as long as its values are finite and moderate and unnormalising restores them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from labs.demonstrated_actions import FAR_OFF, demonstrations, extremes
from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import (
    expect_equal,
    expect_image_and_instruction_to_matter,
    listed,
    random_batch,
    random_padding,
)
from labs.policy_comparison import encoded, expect_gradients_of, with_louder_head
from labs.vla.dataset import demonstrations as old_robot
from labs.vla.heads import mean_over_steps
from labs.vla.policy import Policy, PolicyConfig

HORIZON = 4
WIDTH, WRIST, WRIST_ANGLE = 4, 2, 0.35
AWAY = 0.01
MODERATE = 10.0
"""For a value a hundredth of a unit away from a constant; for a joint that moves, this step is about 0.02 to 0.2."""
BESIDE = 1e-3
"""By how much rounding may take a value out of [-1, 1]."""
ROUNDING = 5e-6
"""In environment units, where a float32 is exact to 1e-7."""
SMALL_RANGE = 2e-3
"""About a tenth of a degree: a joint with so small a range still counts as moving."""
HELD = (0.0, 90.0, -2000.0)
"""Where other robots hold a joint: at zero, at a right angle in degrees, at a number of encoder counts."""
COUNTS = 5
"""So many neighbouring encoder counts, far from zero, are a range as well: less than a hundred-thousandth of them."""
LARGEST_FLOAT = torch.finfo(torch.float32).max
LOUD = 100.0
"""Factor on a fresh last layer. Errors are then much larger than 1, and actions are far outside of the bounds."""


OVERFIT_STEPS = 50
LOSS_BAR = 0.3
WRIST_BAR = 0.15
"""Radians; a fresh head has an error of half a radian."""


@check(
    kind="behaviour",
    title="A joint that never moves normalises to moderate numbers",
    property=f"For its constant value, and for values {AWAY} to either side of it, normalise must return finite numbers of at most {MODERATE:g}. At whatever value a joint was held, that value must normalise to a number from -1 to 1. The same must hold where no joint moves.",
    instrument="debugkit.check(policy, batch, select=['DK402'])",
)
def test_still_joint_is_moderate(submission: Submission, rng: Rng) -> None:
    for width, still in ((4, [2]), (rng.integer(5, 8), [0, 3])):
        demos = demonstrations_with(rng, 64, width, still)
        constant = demos["demonstrated"][0, 0].clone()
        beside = torch.stack([constant, constant + AWAY, constant - AWAY])
        seen = submission.observe("there_and_back", **demos, action=beside)["normalised"]
        expect(seen, "the normalised actions").has_shape(3, width)
        expect(seen[1:, still].abs().tolist(), "sizes beside it")
        for joint in still:
            of = f"of joint {joint} (always {constant[joint]:.3f})"
            expect(seen[0, joint], f"the normalised constant {of}").between(-MODERATE, MODERATE)
            for value, where in zip(seen[1:, joint], ("above", "below"), strict=True):
                expect(value, f"the normalised value {AWAY} {where} the constant {of}").between(-MODERATE, MODERATE)
    for held in HELD:
        demos, constant = held_at(rng, held)
        beside = torch.stack([constant, constant + AWAY, constant - AWAY])
        seen = submission.observe("there_and_back", **demos, action=beside)["normalised"]
        expect(seen, "the normalised actions").has_shape(3, WIDTH)
        of = f"of a joint that was always at {held:g}"
        expect(seen[0, WRIST], f"the normalised constant {of}").between(-1 - BESIDE, 1 + BESIDE)
        for value, where in zip(seen[1:, WRIST], ("above", "below"), strict=True):
            expect(value, f"the normalised value {AWAY} {where} the constant {of}").between(-MODERATE, MODERATE)
    demos = demonstrations_with(rng, 64, WIDTH, list(range(WIDTH)))
    constant = extremes(demos)[0]
    beside = torch.stack([constant, constant + AWAY, constant - AWAY])
    seen = submission.observe("there_and_back", **demos, action=beside)["normalised"]
    what = "the normalised actions, where no joint moves in the demonstrations,"
    expect(seen, what).has_shape(3, WIDTH)
    for joint, value in enumerate(constant):
        of = f"of joint {joint} (always {value:.3f}), where no joint moves"
        expect(seen[:, joint], f"the normalised constant, and the values {AWAY} to either side, {of}").between(
            -MODERATE, MODERATE
        )


@check(
    kind="behaviour",
    title="Demonstrated actions survive the round trip",
    property="unnormalise(normalise(action)) must equal the action in every dimension, including those that never moved, also where no joint moves or the demonstrations have a single step.",
    instrument="debugkit.check(policy, batch, select=['DK401'])",
)
def test_demonstrations_come_back(submission: Submission, rng: Rng) -> None:
    for training, width, still in ((False, 4, [2]), (True, rng.integer(5, 8), [1, 4]), (True, 4, [])):
        demos = demonstrations_with(rng, rng.integer(20, 60), width, still)
        action = demos["demonstrated"][~demos["action_is_pad"]]
        seen = submission.observe("there_and_back", **demos, action=action, training=training)
        if still:
            expect(seen["returned"][0, still], "still joints returned")
        for joint in range(width):
            moves = "never moves" if joint in still else "moves"
            error = (seen["returned"][:, joint] - action[:, joint]).abs().max()
            expect(error, f"the largest error of joint {joint}, which {moves}, after the round trip").at_most(ROUNDING)
    for held in HELD:
        demos, constant = held_at(rng, held)
        found = submission.observe("there_and_back", **demos, action=constant[None])["returned"][0, WRIST]
        said = f"where a joint that was always at {held:g} is after the round trip"
        expect(found, said).close_to(held, rtol=ROUNDING, atol=ROUNDING)
    still_demos = demonstrations_with(rng, rng.integer(2, 20), WIDTH, list(range(WIDTH)))
    one_step = {name: value[:1, :1].clone() for name, value in demonstrations_with(rng, 1, WIDTH, []).items()}
    for demos, where in (
        (still_demos, "no joint moves in the demonstrations"),
        (one_step, "the demonstrations have a single step"),
    ):
        action = demos["demonstrated"][~demos["action_is_pad"]]
        found = submission.observe("there_and_back", **demos, action=action)["returned"]
        expect(found, f"the actions after the round trip, where {where},").close_to(action, rtol=0, atol=ROUNDING)


@check(
    kind="behaviour",
    title="Joints that move are normalised as before",
    property="For every joint that moves, however little, its own range must be mapped to [-1, 1] and back, without clipping.",
    instrument="python -c 'from policy import *; print(build_policy(wrist_demonstrations(2000, 3), 0).normaliser.span)'",
)
def test_other_joints_are_untouched(submission: Submission, rng: Rng) -> None:
    for shape, width, still in (((20,), 4, [2]), ((2, 3), rng.integer(5, 8), [0, 3]), ((), 4, [])):
        demos = demonstrations_with(rng, 64, width, still)
        low, high = extremes(demos)
        moves = [joint for joint in range(width) if joint not in still]
        action = low + rng.uniform(*shape, width, low=-0.5, high=1.5) * (high - low)  # half of them beyond the bounds
        seen = submission.observe("there_and_back", **demos, action=action)["normalised"]
        expect(seen, f"normalised actions of shape {list(action.shape)}").has_shape(*action.shape)
        wanted = 2 * (action.double() - low.double()) / (high.double() - low.double()) - 1
        rounding = 3e-5 + 4e-7 * (low.abs() + high.abs()) / (high - low)  # of float32
        change = (seen.double() - wanted).abs()
        expect(sorted({moves[j] for j in (change > rounding)[..., moves].nonzero()[:, -1].tolist()}), "changed joints")
        normalised = rng.uniform(*shape, width, low=-1.5, high=1.5)
        back = submission.observe("brought_back", **demos, normalised=normalised)
        expect(back, f"unnormalised actions of shape {list(action.shape)}").has_shape(*action.shape)
        if still:
            expect(back[..., still], "still joints brought back")
        if len(shape) == 1:
            spans = 2 * (action.max(dim=0)[0] - action.min(dim=0)[0]) / (seen.max(dim=0)[0] - seen.min(dim=0)[0])
            expect((spans - (high - low))[moves].tolist(), "what is added to ranges")
        for joint in moves:
            of = f"of joint {joint}, whose range is {high[joint] - low[joint]:.3g}"
            expect(change[..., joint].max(), f"the largest error {of}, normalised").at_most(float(rounding[joint]))
            error = (back - (low + (normalised + 1) / 2 * (high - low)))[..., joint].abs().max()
            expect(error, f"the largest error {of}, unnormalised").at_most(ROUNDING)
    first = 1000 * rng.integer(500, 600)
    counts = (first + rng.integers(0, COUNTS, 64, HORIZON)).float()
    counts[0, :2] = torch.tensor([first, first + COUNTS - 1.0])
    demos, _ = held_at(rng, 0.0)
    demos["demonstrated"][..., WRIST], demos["action_is_pad"][0, :2] = counts, False
    low, high = extremes(demos)
    seen = submission.observe("there_and_back", **demos, action=torch.stack([low, high]))["normalised"][:, WRIST]
    for value, wanted, which in zip(seen, (-1.0, 1.0), ("lowest", "highest"), strict=True):
        what = f"the normalised {which} value of a joint that moves from {first} to {first + COUNTS - 1} encoder counts"
        expect(value, what).close_to(wanted, rtol=0, atol=0.2)  # of float32, to which such counts are exact to 0.03


@check(
    kind="invariant",
    title="The loss is the mean over all dimensions, and trains everything",
    property="The loss must be the smooth L1 between head and normalised action over every dimension, including the wrist, and every step that is not padding. Its gradient must be finite and reach every parameter.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_loss_counts_every_joint(submission: Submission, rng: Rng) -> None:
    for size, louder in ((rng.integer(3, 9), 1.0), (1, LOUD)):
        batch, seed = padded_wrist_batch(rng, size), rng.seed()
        seen = submission.observe("loss_and_action", batch=batch, seed=seed, louder=louder)
        expect(seen["loss"], "the loss").finite()
        policy = loud_base(seed, louder)
        loss = reference_loss(policy, batch, still_target(submission, batch))
        loss.backward()
        of = f"of {size} frame{'s' * (size > 1)} with {'large' if louder > 1 else 'small'} predictions"
        expect_equal(seen["loss"], loss.detach(), f"the loss {of}")
        expect_gradients_of(policy, seen["gradients"], of)


@check(
    kind="invariant",
    title="The robot executes the head's numbers in environment units",
    property="`predict` must return the head's output, unnormalised with the policy's bounds, without clipping.",
    instrument="python -c 'from policy import *; print(build_policy(wrist_demonstrations(2000, 3), 0).normaliser.span)'",
)
def test_executed_action(submission: Submission, rng: Rng) -> None:
    for size, louder in ((rng.integer(2, 6), 1.0), (1, LOUD)):
        batch, seed = padded_wrist_batch(rng, size), rng.seed()
        executed = submission.observe("loss_and_action", batch=batch, seed=seed, louder=louder)["executed"]
        policy = loud_base(seed, louder)
        head = policy.head.predict(encoded(policy, batch)).detach()
        demos = {"demonstrated": batch["action"], "action_is_pad": batch["action_is_pad"]}
        low, high = extremes(demos)
        wanted = low + (head + 1) / 2 * (high - low)
        wanted[..., WRIST] = submission.observe("brought_back", **demos, normalised=head)[..., WRIST]
        expect(executed, "the executed chunk").has_shape(*wanted.shape)
        for joint, name in enumerate(("dx", "dy", "the wrist", "the gripper")):
            expect_equal(executed[..., joint], wanted[..., joint], f"the executed {name.removeprefix('the ')}")


@check(
    kind="invariant",
    title="The new robot's policy is built from its demonstrations",
    property=f"The demonstrations must be those of the old robot with the wrist at {WRIST_ANGLE} rad. `build_policy` must use the pretrained base, a head drawn from the seed, and these demonstrations' bounds, which a checkpoint keeps.",
    instrument="python -c 'from policy import *; print(build_policy(wrist_demonstrations(2000, 3), 0).normaliser.state_dict())'",
)
def test_policy_is_built_from_its_demonstrations(submission: Submission, rng: Rng) -> None:
    count, seed = rng.integer(200, 300), rng.integer(300, 1000)
    normalised = rng.uniform(7, WIDTH, low=-2.0, high=2.0)
    seen = submission.observe("built", count=count, seed=seed, normalised=normalised)
    expect(seen["dimensions"], "DIMENSIONS").equals(["dx", "dy", "wrist", "gripper"])
    frames = old_robot(count, seed)
    action = torch.from_numpy(frames.action)
    wanted = {
        "image": torch.from_numpy(frames.image),
        "state": torch.from_numpy(frames.state),
        "action": torch.cat([action[..., :2], torch.full_like(action[..., :1], WRIST_ANGLE), action[..., 2:]], dim=-1),
        "action_is_pad": torch.from_numpy(frames.action_is_pad),
    }
    expect(seen["instructions"], "the demonstrations' instructions").equals(list(frames.instruction))
    for name, value in wanted.items():
        found = seen["frames"][name]
        expect(found, f"the demonstrations' {name}").has_shape(*value.shape)
        expect(str(found.dtype), f"the dtype of the demonstrations' {name}").equals(str(value.dtype))
        expect(int((found != value).sum()), f"how many numbers of the demonstrations' {name} differ").equals(0)
    weights = Policy.from_base(PolicyConfig(action_dim=WIDTH), seed=seed).state_dict()
    expect(listed(weights.keys() ^ seen["weights"].keys()), "what the policy lacks or has too many").equals("nothing")
    other = {name for name, value in weights.items() if not torch.equal(seen["weights"][name], value)}
    expect(listed(other), "what differs from the base, or from a head drawn from the seed").equals("nothing")
    low, high = extremes({"demonstrated": wanted["action"], "action_is_pad": wanted["action_is_pad"]})
    moves = [joint for joint in range(WIDTH) if joint != WRIST]
    there = (low + (normalised + 1) / 2 * (high - low))[:, moves]
    expect_equal(seen["unnormalised"][:, moves], there, "the actions of `build_policy`'s policy")
    expect_equal(
        seen["unnormalised when loaded"], seen["unnormalised"], "the actions of a policy that loaded its checkpoint"
    )
    expect_equal(
        seen["normalised when loaded"], seen["normalised"], "what a policy that loaded its checkpoint normalises"
    )


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change what the robot executes.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng, batch=wrist_batch(rng, 3))


@check(
    kind="outcome",
    title="The policy learns and holds its wrist",
    property=f"After training on one batch, the loss must be below {LOSS_BAR:.0%} of its first value, and the wrist within {WRIST_BAR} rad of the demonstrated angle.",
    instrument="debugkit.overfit_one_batch(policy, batch)",
)
def test_policy_learns(submission: Submission, seed: int) -> None:
    seen = submission.observe("overfitted", seed=seed, steps=OVERFIT_STEPS)
    expect(seen["losses"], "the training losses").finite()
    expect(sum(seen["losses"][-5:]) / 5 / seen["losses"][0], "the final loss, relative to the first").below(LOSS_BAR)
    error = (seen["action"] - seen["wanted"])[..., 2].abs().mean()
    expect(error, "the wrist's mean error in radians").below(WRIST_BAR)


STILL = "test_still_joint_is_moderate"
BACK = "test_demonstrations_come_back"
OTHERS = "test_other_joints_are_untouched"


@wrong_fix(
    "nan_to_num",
    says="0/0 is gone, but the first value that is not exactly the constant gives x/0: infinity, which nan_to_num turns into the largest float.",
)
def recognise_nan_to_num(evidence: Mapping[str, Any]) -> bool:
    return unchanged(evidence) and all(size == LARGEST_FLOAT for size in beside(evidence))


@wrong_fix(
    "tiny_epsilon",
    says="The result is finite but far too large: divided by so small a number, a hundredth of a radian becomes millions. One such frame ruins the loss.",
)
def recognise_tiny_epsilon(evidence: Mapping[str, Any]) -> bool:
    return unchanged(evidence) and all(MODERATE < size <= 1e20 for size in beside(evidence))


@wrong_fix(
    "epsilon_for_every_joint",
    says="The wrist is correct now, but every other joint has changed: all ranges are larger, so no demonstration reaches 1 any more.",
)
def recognise_epsilon(evidence: Mapping[str, Any]) -> bool:
    added = evidence[f"{OTHERS}/what is added to ranges"]
    same = all(one > 0 and abs(one - added[0]) < 0.01 * added[0] + ROUNDING for one in added)
    return evidence[STILL]["outcome"] == "passed" and added[0] > 0.1 * SMALL_RANGE and same


@wrong_fix(
    "smallest_range",
    says="This treats a joint that moves little as one that never moves: a joint with a range of two milliradians now covers a small part of [-1, 1] and hardly counts in the loss.",
)
def recognise_smallest_range(evidence: Mapping[str, Any]) -> bool:
    changed, added = evidence[f"{OTHERS}/changed joints"], evidence[f"{OTHERS}/what is added to ranges"]
    return evidence[STILL]["outcome"] == "passed" and changed == [1] and added[1] > SMALL_RANGE


@wrong_fix(
    "drop_the_joint",
    says="The policy no longer commands the wrist, so it goes to 0 rad. In every demonstration it was held at another angle.",
)
def recognise_dropped(evidence: Mapping[str, Any]) -> bool:
    returned = (evidence[f"{BACK}/still joints returned"], evidence[f"{OTHERS}/still joints brought back"])
    return evidence[STILL]["outcome"] == "passed" and unchanged(evidence) and not any(one.any() for one in returned)


def unchanged(evidence: Mapping[str, Any]) -> bool:
    """Whether every joint that moves is normalised as before."""
    return evidence[f"{OTHERS}/changed joints"] == []


def beside(evidence: Mapping[str, Any]) -> list[float]:
    """How large a still joint's normalised values are beside its constant."""
    return [size for sizes in evidence[f"{STILL}/sizes beside it"] for size in sizes]


def demonstrations_with(rng: Rng, count: int, width: int, still: list[int]) -> dict[str, Tensor]:
    """Demonstrated actions (N, H, A) whose joints `still` never move, and their padding (N, H).

    If joint 1 moves, it moves very little. Padded steps hold values that would widen every range.
    """
    low, reach = -rng.uniform(width, low=0.01, high=0.04), rng.uniform(width, low=0.06, high=0.1)
    action = low + rng.uniform(count, HORIZON, width) * (reach - low)
    action[..., 1] = 0.05 + SMALL_RANGE * rng.uniform(count, HORIZON)
    action[..., -1] = 2.0 * rng.boolean(count, HORIZON, probability=0.3) - 1
    for joint in still:
        action[..., joint] = float(rng.uniform(1, low=0.2, high=1.5)) * (1 if joint % 2 else -1)
    return demonstrations(rng, action)


def held_at(rng: Rng, held: float) -> tuple[dict[str, Tensor], Tensor]:
    """Demonstrations whose wrist is always at `held`, and one of their actions (A,)."""
    demos = demonstrations_with(rng, 64, WIDTH, [WRIST])
    is_pad = demos["action_is_pad"]
    demos["demonstrated"][..., WRIST] = held + FAR_OFF * is_pad
    return demos, demos["demonstrated"][~is_pad][0].clone()


def wrist_batch(rng: Rng, size: int) -> dict[str, Tensor]:
    """A batch of four action dimensions, the third of which never moves."""
    batch = random_batch(rng, size, action_dim=WIDTH)
    batch["action"][..., WRIST] = float(rng.uniform(1, low=0.2, high=1.0))
    batch["action"][0, :3, :2] = torch.tensor([[-0.1, 0.05], [0.08, -0.1], [0.02, 0.1]])
    batch["action"][0, 0, 3], batch["action"][0, 1, 3] = -1.0, 1.0
    return batch


def padded_wrist_batch(rng: Rng, size: int) -> dict[str, Tensor]:
    """A batch for the wrist in which later steps are padding that lies far outside all ranges."""
    batch = wrist_batch(rng, size)
    batch["action_is_pad"] = random_padding(rng, size)
    batch["action_is_pad"][0] = torch.tensor([False, False, False, True])
    batch["action"][batch["action_is_pad"]] += FAR_OFF
    return batch


def loud_base(seed: int, louder: float) -> Policy:
    """The base policy with four action dimensions, whose last layer is `louder` times as large."""
    return with_louder_head(Policy.from_base(PolicyConfig(action_dim=WIDTH), seed=seed), louder)


def still_target(submission: Submission, batch: Mapping[str, Tensor]) -> Tensor:
    """The submission's normalised wrist (B, H), for which no mapping is prescribed."""
    demos = {"demonstrated": batch["action"], "action_is_pad": batch["action_is_pad"]}
    return submission.observe("there_and_back", **demos, action=batch["action"])["normalised"][..., WRIST]


def reference_loss(policy: Policy, batch: Mapping[str, Tensor], wrist: Tensor) -> Tensor:
    """The mean smooth L1 of the dimensions and of the steps that are not padding."""
    low, high = extremes({"demonstrated": batch["action"], "action_is_pad": batch["action_is_pad"]})
    target = 2 * (batch["action"] - low) / (high - low) - 1
    target[..., WRIST] = wrist
    error = F.smooth_l1_loss(policy.head.predict(encoded(policy, batch)), target, beta=0.1, reduction="none")
    return mean_over_steps(error.mean(dim=-1), batch["action_is_pad"])
