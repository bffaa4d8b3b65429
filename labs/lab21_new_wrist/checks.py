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

from labs.demonstrated_actions import demonstrations, extremes
from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_image_and_instruction_to_matter, random_batch

HORIZON = 4
AWAY = 0.01
MODERATE = 10.0
"""For a value a hundredth of a unit away from a constant; for a joint that moves, this step is about 0.02 to 0.2."""
SMALL_RANGE = 2e-3
"""About a tenth of a degree: a joint with so small a range still counts as moving."""

OVERFIT_STEPS = 50
LOSS_BAR = 0.3
WRIST_BAR = 0.15
"""Radians; a fresh head has an error of half a radian."""


@check(
    kind="behaviour",
    title="A joint that never moves normalises to moderate numbers",
    property=f"For its constant value, and for values {AWAY} to either side of it, normalise must return finite numbers of at most {MODERATE:g}.",
    instrument="debugkit.check(policy, batch, select=['DK402'])",
)
def test_still_joint_is_moderate(submission: Submission, rng: Rng) -> None:
    for width, still in ((4, [2]), (rng.integer(5, 8), [0, 3])):
        demos = demonstrations_with(rng, 64, width, still)
        constant = demos["demonstrated"][0, 0].clone()
        beside = torch.stack([constant, constant + AWAY, constant - AWAY])
        beside[:, [j for j in range(width) if j not in still]] = constant[[j for j in range(width) if j not in still]]
        seen = submission.observe("there_and_back", **demos, action=beside)["normalised"]
        expect(seen, "the normalised actions").has_shape(3, width)
        expect(seen[0, still], "a joint at its constant value, normalised").finite()
        expect(largest(seen[1:, still]), "largest beside it")
        expect(seen[1:, still], f"a joint {AWAY} away from its constant value, normalised").between(-MODERATE, MODERATE)
        expect(seen[0, still], "a joint at its constant value, normalised").between(-MODERATE, MODERATE)


@check(
    kind="behaviour",
    title="Demonstrated actions survive the round trip",
    property="unnormalise(normalise(action)) must equal the action in every dimension, including those that never moved.",
    instrument="debugkit.check(policy, batch, select=['DK401'])",
)
def test_demonstrations_come_back(submission: Submission, rng: Rng) -> None:
    for width, still in ((4, [2]), (rng.integer(5, 8), [1, 4]), (4, [])):
        demos = demonstrations_with(rng, rng.integer(20, 60), width, still)
        action = demos["demonstrated"][~demos["action_is_pad"]]
        seen = submission.observe("there_and_back", **demos, action=action)
        if still:
            expect(seen["returned"][0, still], "still joints returned")
        expect(seen["returned"], "the demonstrated actions after the round trip").close_to(action, rtol=1e-5, atol=1e-6)


@check(
    kind="behaviour",
    title="Joints that move are normalised as before",
    property="For every joint that moves, however little, its own range must be mapped to [-1, 1] and back, without clipping.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_other_joints_are_untouched(submission: Submission, rng: Rng) -> None:
    for width, still in ((4, [2]), (rng.integer(5, 8), [0, 3]), (4, [])):
        demos = demonstrations_with(rng, 64, width, still)
        low, high = extremes(demos)
        moves = [j for j in range(width) if j not in still]
        action = low + rng.uniform(20, width, low=-0.5, high=1.5) * (high - low)  # a quarter of them beyond the bounds
        seen = submission.observe("there_and_back", **demos, action=action)["normalised"]
        wanted = 2 * (action.double() - low.double()) / (high.double() - low.double()) - 1
        tolerance = 1e-5 + 2e-7 * float((low.abs() / (high - low))[moves].max())  # the limit of float32
        change = (seen.double() - wanted).abs().amax(dim=0)
        expect([joint for joint in moves if change[joint] > tolerance], "changed joints")
        expect(seen[:, moves], "the joints that move, normalised").close_to(
            wanted[:, moves].float(), rtol=1e-5, atol=tolerance
        )
        normalised = rng.uniform(20, width, low=-1.5, high=1.5)
        back = submission.observe("brought_back", **demos, normalised=normalised)
        expect(back[:, moves], "the joints that move, unnormalised").close_to(
            (low + (normalised + 1) / 2 * (high - low))[:, moves], rtol=1e-5, atol=1e-6
        )


@check(
    kind="invariant",
    title="The loss is the mean over all dimensions, and trains everything",
    property="The loss must be the smooth L1 over every dimension, including the wrist, and give every parameter a finite gradient.",
    instrument="debugkit.first_nonfinite(policy, batch)",
)
def test_loss_counts_every_joint(submission: Submission, rng: Rng) -> None:
    batch = wrist_batch(rng, rng.integer(3, 9))
    seen = submission.observe("loss_and_parts", batch=batch, seed=rng.seed())
    expect(seen["loss"], "the loss").finite()
    expect(seen["head"], "the head's output").has_shape(*batch["action"].shape)
    expect(seen["target"], "the normalised actions").has_shape(*batch["action"].shape)
    wanted = F.smooth_l1_loss(seen["head"].double(), seen["target"].double(), beta=0.1)
    expect(seen["loss"], "the loss").close_to(float(wanted), rtol=1e-4, atol=1e-6)
    norms = seen["gradients"]
    expect(sorted(n for n, norm in norms.items() if norm < 0), "the list of parameters without a gradient").equals([])
    expect(list(norms.values()), "the gradient norms").finite()


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
    return evidence.get(f"{STILL}/largest beside it", 0.0) > 1e20


@wrong_fix(
    "tiny_epsilon",
    says="The result is finite but far too large: divided by so small a number, a hundredth of a radian becomes millions. One such frame ruins the loss.",
)
def recognise_tiny_epsilon(evidence: Mapping[str, Any]) -> bool:
    return MODERATE < evidence.get(f"{STILL}/largest beside it", 0.0) <= 1e20


@wrong_fix(
    "epsilon_for_every_joint",
    says="The wrist is correct now, but every other joint has changed: all ranges are larger, so no demonstration reaches 1 any more.",
)
def recognise_epsilon(evidence: Mapping[str, Any]) -> bool:
    changed = evidence.get(f"{OTHERS}/changed joints", [])
    return evidence[STILL]["outcome"] == evidence[BACK]["outcome"] == "passed" and len(changed) > 1


@wrong_fix(
    "smallest_range",
    says="This treats a joint that moves little as one that never moves: a joint with a range of two milliradians now covers a fifth of [-1, 1] and hardly counts in the loss.",
)
def recognise_smallest_range(evidence: Mapping[str, Any]) -> bool:
    changed = evidence.get(f"{OTHERS}/changed joints", [])
    return evidence[STILL]["outcome"] == evidence[BACK]["outcome"] == "passed" and changed == [1]


@wrong_fix(
    "drop_the_joint",
    says="The policy no longer commands the wrist, so it goes to 0 rad. In every demonstration it was held at another angle.",
)
def recognise_dropped(evidence: Mapping[str, Any]) -> bool:
    returned = evidence.get(f"{BACK}/still joints returned")
    return evidence[STILL]["outcome"] == "passed" and returned is not None and bool((returned == 0).all())


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


def largest(values: Tensor) -> float:
    """The largest absolute value that is not NaN; 0 if all are NaN."""
    return float(values.abs().nan_to_num(nan=0.0, posinf=float("inf")).max())


def wrist_batch(rng: Rng, size: int) -> dict[str, Tensor]:
    """A batch of four action dimensions, the third of which never moves."""
    batch = random_batch(rng, size, action_dim=4)
    batch["action"][..., 2] = float(rng.uniform(1, low=0.2, high=1.0))
    batch["action"][0, 0, 3], batch["action"][0, 1, 3] = -1.0, 1.0
    return batch
