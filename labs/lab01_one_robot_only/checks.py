"""What must hold for a policy that is configured, not rewritten, for another robot. Runs in the grader's process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_image_and_instruction_to_matter, expect_success_rate, random_batch

HIDDEN, TIME_WIDTH = 128, 16
EPISODES = 50
SUCCESS_BAR = 0.8


@check(
    kind="behaviour",
    title="It trains for every robot, with either vision tower",
    property="Forward and backward must run for any action width, chunk length and state width, and give every parameter of the head a gradient.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_trains_for_every_robot(submission: Submission, rng: Rng) -> None:
    robots = [
        (4, 4, 64),
        (7, rng.integer(2, 9), 48),
        (32, rng.integer(2, 5), 64),
        (rng.integer(1, 40), rng.integer(1, 9), 48),
    ]
    for action_dim, horizon, vision_width in robots:
        config = robot(action_dim, horizon, rng.integer(2, 12), vision_width)
        batch = batch_for(rng, rng.integer(1, 6), config)
        seen = submission.observe("train_step", config=config, batch=batch, seed=rng.seed())
        expect(seen["loss"], f"the loss for {action_dim} joints").finite()
        expect(seen["action"], f"the chunk for {action_dim} joints").has_shape(len(batch["state"]), horizon, action_dim)
        without = sorted(name for name, norm in seen["norms"].items() if norm < 0)
        expect(without, "the list of head parameters without a gradient").equals([])
        expect(len(seen["norms"]), "the number of parameters in the head").at_least(6)


@check(
    kind="behaviour",
    title="The velocity depends on every number of the chunk",
    property="The velocity must depend on each of the H x A numbers of the noisy chunk, and on the feature and the time.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_every_number_is_read(submission: Submission, rng: Rng) -> None:
    for action_dim, horizon in ((7, 5), (rng.integer(10, 20), 3)):
        config, seed = robot(action_dim, horizon, 4, 64), rng.seed()
        given = {"feature": rng.normal(2, 64), "noisy": rng.normal(2, horizon, action_dim), "time": rng.uniform(2)}
        before = submission.observe("velocity", config=config, seed=seed, **given)
        expect(before, "the velocity").has_shape(2, horizon, action_dim)
        for step, joint in (
            (0, 0),
            (horizon - 1, action_dim - 1),
            (rng.integer(0, horizon), rng.integer(0, action_dim)),
        ):
            noisy = given["noisy"].clone()
            noisy[:, step, joint] += 1.0
            after = submission.observe("velocity", config=config, seed=seed, **{**given, "noisy": noisy})
            expect(after, f"the velocity when joint {joint} of step {step} changes").differs_from(before)
        for name in ("feature", "time"):
            after = submission.observe("velocity", config=config, seed=seed, **{**given, name: given[name] + 0.5})
            expect(after, f"the velocity under another {name}").differs_from(before)


@check(
    kind="invariant",
    title="The layers are built once, at the config's widths",
    property="Before the first batch the head must hold its three layers: from D + H·A + 16 to 128, to 128, to H·A. The tabletop robot's checkpoints must still load.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_layers_have_the_configs_widths(submission: Submission, rng: Rng) -> None:
    shapes: dict[str, Any] = {}
    for action_dim, horizon in ((3, 4), (7, 5), (rng.integer(8, 33), rng.integer(1, 9))):
        shapes[f"{horizon} x {action_dim}"] = submission.observe("parameters", config=robot(action_dim, horizon, 3, 64))
        expect(shapes, "shapes")
    for key, found in shapes.items():
        horizon, action_dim = map(int, key.split(" x "))
        expect(sorted(found.values()), f"the list of parameter shapes for chunks of {key}").equals(
            sorted(layer_shapes(horizon * action_dim))
        )


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the predicted chunk.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng)


@check(
    kind="outcome",
    title="The tabletop robot still grasps",
    property=f"After a short fine-tuning, at least {SUCCESS_BAR:.0%} of {EPISODES} episodes on fresh tables must end at the named block.",
    instrument="lab run 01",
)
def test_robot_grasps(submission: Submission, seed: int) -> None:
    result = submission.observe("trained_rollout", seed=seed, episodes=EPISODES)
    expect_success_rate(result["success"], episodes=EPISODES, at_least=SUCCESS_BAR)


@wrong_fix(
    "other_literal",
    says="This is the width of another robot's chunk: the policy now fits that robot and no longer fits the tabletop robot.",
)
def recognise_other_literal(evidence: Mapping[str, Any]) -> bool:
    widths = first_widths(evidence)
    return len(set(widths)) == 1 and widths[0] != TABLETOP and evidence[TRAINS]["outcome"] == "failed"


@wrong_fix(
    "pad_or_slice",
    says="The chunk is padded or cut to fit the layer, but the layer should fit the chunk: every number after the twelfth is thrown away.",
)
def recognise_pad(evidence: Mapping[str, Any]) -> bool:
    return set(first_widths(evidence)) == {TABLETOP} and evidence[TRAINS]["outcome"] == "passed"


@wrong_fix(
    "fresh_layer_in_forward",
    says="Every call to forward creates a new random layer: it is in no state_dict and in no optimizer, so it can never learn.",
)
def recognise_fresh_layer(evidence: Mapping[str, Any]) -> bool:
    return not first_widths(evidence) and all(len(found) == 4 for found in evidence[SHAPES].values())


@wrong_fix(
    "widest_robot",
    says="Every robot's chunk is padded to the widest one: it runs, but the tabletop robot's layers now have other shapes, so no earlier checkpoint loads.",
)
def recognise_widest(evidence: Mapping[str, Any]) -> bool:
    widths = first_widths(evidence)
    return len(set(widths)) == 1 and widths[0] > TABLETOP and evidence[TRAINS]["outcome"] == "passed"


TRAINS, SHAPES = "test_trains_for_every_robot", "test_layers_have_the_configs_widths/shapes"
TABLETOP = 64 + 12 + TIME_WIDTH
"""What the first layer takes for the tabletop: feature, four actions of three, time."""


def first_widths(evidence: Mapping[str, Any]) -> list[int]:
    """How many columns the first layer takes, for each of the robots; empty if there is no such layer."""
    weights = [shape for found in evidence[SHAPES].values() for shape in found.values() if len(shape) == 2]
    return [columns for rows, columns in weights if rows == HIDDEN and columns != HIDDEN]


def layer_shapes(chunk: int) -> list[list[int]]:
    """Weights and biases of the velocity network for a feature of 64 and a chunk of H * A numbers."""
    return [[HIDDEN, 64 + chunk + TIME_WIDTH], [HIDDEN], [HIDDEN, HIDDEN], [HIDDEN], [chunk, HIDDEN], [chunk]]


def robot(action_dim: int, horizon: int, state_dim: int, vision_width: int) -> dict[str, int]:
    """The part of a PolicyConfig in which robots and cameras differ."""
    return {"action_dim": action_dim, "horizon": horizon, "state_dim": state_dim, "vision_width": vision_width}


def batch_for(rng: Rng, size: int, config: dict[str, int]) -> dict[str, Tensor]:
    """A batch of this robot's shapes."""
    shapes = {name: config[name] for name in ("horizon", "action_dim", "state_dim")}
    return random_batch(rng, size, **shapes)
