"""What must hold for a policy that is configured, not rewritten, for another robot. Runs in the grader's process.

The reference is the healthy policy with a flow-matching head of the same three layers. Both get the same random
parameters and the same seed, so each velocity, loss and chunk has one correct value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import (
    TOLERANCE,
    expect_equal,
    expect_image_and_instruction_to_matter,
    expect_success_rate,
    listed,
    random_batch,
)
from labs.vla.heads import FlowMatchingHead
from labs.vla.policy import OBSERVATION_KEYS, Policy, PolicyConfig
from labs.vla.randomness import private_randomness

HIDDEN, TIME_WIDTH = 128, 16
EPISODES = 50
SUCCESS_BAR = 0.8

Config = dict[str, int]
TABLETOP: Config = {"action_dim": 3, "horizon": 4, "state_dim": 3, "vision_width": 64, "width": 64}
TABLETOP_CHUNK = 12
ARM = {"action_dim": 7, "horizon": 5, "state_dim": 9}


@check(
    kind="behaviour",
    title="It trains for every robot, with towers of any width",
    property="Forward, backward and predict must run for any action width, chunk length, state width and tower widths, and every parameter of the head must get a gradient.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_trains_for_every_robot(submission: Submission, rng: Rng) -> None:
    for number, config in enumerate(robots(rng)):
        expect(number, RAN)
        batch = batch_for(rng, rng.integer(1, 6), config)
        seen = submission.observe("train_step", config=config, batch=batch, seed=rng.seed())
        expect(number + 1, RAN)
        expect(seen["loss"], f"the loss ({said(config)})").finite()
        expect(seen["chunk"], f"the chunk ({said(config)})").has_shape(*batch["action"].shape)
        expect(len(seen["gradients"]), f"the number of head parameters with a gradient ({said(config)})").at_least(6)


@check(
    kind="behaviour",
    title="The velocity depends on every number of the chunk",
    property="The velocity must depend on each of the H x A numbers of the noisy chunk, and on the feature and the time.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_every_number_is_read(submission: Submission, rng: Rng) -> None:
    for config in robots(rng):
        given = {"feature": rng.normal(2, config["width"]), "time": rng.uniform(2)}
        noisy = rng.normal(2, config["horizon"], config["action_dim"])
        seen = submission.observe("read", config=config, noisy=noisy, **given)
        used = int((seen["noisy"] != 0).any(dim=0).sum())
        expect(used, f"the count of numbers of the chunk that change the velocity ({said(config)})").equals(
            chunk_of(config)
        )
        for name in given:
            ignored = int((seen[name] == 0).sum())
            expect(ignored, f"the count of values of the {name} that change nothing ({said(config)})").equals(0)


@check(
    kind="behaviour",
    title="The layers are built once, at the config's widths",
    property="Before the first batch the head must hold `velocity.layers.0`, `.2` and `.4`: from D + H·A + 16 to 128, to 128, to H·A. The tabletop robot's stored heads must still load.",
    instrument="python -c 'from policy import *; print(FlowPolicy(seven_joint_arm()).head)'",
)
def test_layers_have_the_configs_widths(submission: Submission, rng: Rng) -> None:
    heads = [(config, submission.observe("shapes", config=config)) for config in (*robots(rng), TABLETOP)]
    expect([chunk_width(config, found) for config, found in heads], CHUNK_WIDTHS)
    for config, found in heads:
        shapes = layer_shapes(config)
        expect(listed(shapes.keys() - found.keys()), f"what is missing from the head ({said(config)})").equals(NOTHING)
        expect(listed(found.keys() - shapes.keys()), f"what the head has too many ({said(config)})").equals(NOTHING)
        other = {
            f"{name}: {found[name] or 'none'}, not {wanted}" for name, wanted in shapes.items() if found[name] != wanted
        }
        expect(listed(other), f"what has another shape ({said(config)})").equals(NOTHING)
    expect(submission.observe("seven_joints"), "the configuration of the arm with seven joints").equals(ARM)


@check(
    kind="invariant",
    title="A stored head gives the same actions",
    property="With the same parameters and seed, the velocity, the loss, its gradients and the chunk must be those of the healthy flow-matching head, wherever the policy runs.",
    instrument="lab diff 01",
)
def test_stored_head_gives_the_same_actions(submission: Submission, rng: Rng) -> None:
    for config in (TABLETOP, *robots(rng)[1:3]):
        reference, batch, seed = random_reference(rng, config), batch_for(rng, 3, config), rng.seed()
        given = {"config": config, "batch": batch, "seed": seed, "parameters": stored(reference.state_dict())}
        seen, wanted = submission.observe("with_parameters", **given), computed(reference, batch, seed)
        expect(listed(set(seen["misfits"])), f"what does not fit of a stored head ({said(config)})").equals(NOTHING)
        for name in ("velocity", "loss", "chunk"):
            expect_equal(seen[name], wanted[name], f"the {name} ({said(config)})")
        for name in ("loss", "chunk"):
            what = f"the {name} where another device is the default ({said(config)})"
            expect_equal(seen[f"{name} elsewhere"], wanted[name], what)
        expect_gradients(seen["gradients"], wanted["gradients"], config)
    batch = batch_for(rng, 3, TABLETOP)
    given = {"feature": rng.normal(3, 64), "target": batch["action"], "is_pad": batch["action_is_pad"]}
    for name, device in submission.observe("moved", config=TABLETOP, **given).items():
        expect(device, f"the device of the {name} of a head on the meta device").equals("meta")
    for name, drawn in submission.observe("drawn_elsewhere", config=TABLETOP, **given).items():
        what = f"what draws random numbers of the {name} on the device of the head, and not on the CPU,"
        expect(listed(set(drawn)), what).equals(NOTHING)


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


RAN = "the number of robots for which it ran"
CHUNK_WIDTHS = "the widths of the first layer that are left for the chunk"
NOTHING = "nothing"


@wrong_fix(
    "other_literal",
    says="The first layer has the same width for every robot, and no longer the tabletop robot's: the policy fits at most one other robot.",
)
def recognise_other_literal(evidence: Mapping[str, Any]) -> bool:
    width = same_for_all(evidence)
    return width is not None and 0 < width != TABLETOP_CHUNK and not ran_for_all(evidence)


@wrong_fix(
    "pad_or_slice",
    says="The chunk is padded or cut to fit the layer, but the layer should fit the chunk: every number after the twelfth is thrown away.",
)
def recognise_pad(evidence: Mapping[str, Any]) -> bool:
    read = (evidence["test_every_number_is_read/read"]["noisy"] != 0).any(dim=0).flatten()
    cut = bool(read[:TABLETOP_CHUNK].all()) and not bool(read[TABLETOP_CHUNK:].any())
    return same_for_all(evidence) == TABLETOP_CHUNK and cut and ran_for_all(evidence)


@wrong_fix(
    "fresh_layer_in_forward",
    says="Every call to forward creates a new random layer: it is in no state_dict and in no optimizer, so it can never learn.",
)
def recognise_fresh_layer(evidence: Mapping[str, Any]) -> bool:
    of_tabletop = list(evidence["test_layers_have_the_configs_widths/shapes"].values())
    wanted = [[HIDDEN, HIDDEN], [HIDDEN], [TABLETOP_CHUNK, HIDDEN], [TABLETOP_CHUNK]]
    return sorted(of_tabletop) == sorted(wanted) and bool(evidence[f"{TRAINS}/{RAN}"] > 0)


@wrong_fix(
    "widest_robot",
    says="Every robot's chunk is padded to the widest one: it runs, but the tabletop robot's layers now have other shapes, so no earlier checkpoint loads.",
)
def recognise_widest(evidence: Mapping[str, Any]) -> bool:
    width = same_for_all(evidence)
    return width is not None and width > TABLETOP_CHUNK and ran_for_all(evidence)


TRAINS, SHAPES = "test_trains_for_every_robot", "test_layers_have_the_configs_widths"


def same_for_all(evidence: Mapping[str, Any]) -> int | None:
    """The width that the first layer leaves for the chunk, if it is the same for every robot."""
    widths = set(evidence[f"{SHAPES}/{CHUNK_WIDTHS}"])
    return widths.pop() if len(widths) == 1 else None


def ran_for_all(evidence: Mapping[str, Any]) -> bool:
    """Whether no robot's forward or backward pass raised."""
    return bool(evidence[TRAINS]["outcome"] == "passed")


class ReferenceHead(FlowMatchingHead):
    """The healthy head, with hidden layers of the starter's width."""

    def __init__(self, width: int, horizon: int, action_dim: int) -> None:
        super().__init__(width, horizon, action_dim)
        chunk = horizon * action_dim
        first, last = nn.Linear(width + chunk + TIME_WIDTH, HIDDEN), nn.Linear(HIDDEN, chunk)
        self.mlp = nn.Sequential(first, nn.GELU(), nn.Linear(HIDDEN, HIDDEN), nn.GELU(), last)


class Reference(Policy):
    """The healthy policy with the reference's head."""

    def build_head(self) -> ReferenceHead:
        return ReferenceHead(self.config.width, self.config.horizon, self.config.action_dim)


def random_reference(rng: Rng, config: Config) -> Reference:
    """A reference with random parameters, none of which is zero."""
    with private_randomness(rng.seed()):
        reference = Reference(PolicyConfig(**config))
    with torch.no_grad():
        for parameter in reference.head.parameters():
            parameter += rng.normal(*parameter.shape, std=0.1)
    return reference


def computed(reference: Reference, batch: dict[str, Tensor], seed: int) -> dict[str, Any]:
    """What `with_parameters` measures, of the reference."""
    with private_randomness(seed):
        loss = reference(**batch).loss
    loss.backward()
    observed = {name: batch[name] for name in OBSERVATION_KEYS}
    with torch.no_grad(), private_randomness(seed):
        chunk = reference(**observed).action
        velocity = reference.head(reference.encode(**observed), batch["action"], batch["state"][:, 0])
    gradients = stored({name: value.grad for name, value in reference.named_parameters()})
    return {"velocity": velocity, "loss": loss.detach(), "chunk": chunk, "gradients": gradients}


def stored(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The reference's parameters under the names of the stored heads."""
    return {name.replace("head.mlp.", "head.velocity.layers."): value.detach() for name, value in values.items()}


def expect_gradients(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], config: Config) -> None:
    """Every parameter's gradient must be the reference's, up to rounding."""
    expect(listed(wanted.keys() - found.keys()), f"what has no gradient ({said(config)})").equals(NOTHING)
    total = float(torch.stack([gradient.norm() for gradient in wanted.values()]).norm())
    other = {
        name
        for name, gradient in wanted.items()
        if not float((found[name] - gradient).norm()) <= TOLERANCE * float(gradient.norm()) + 1e-5 * total
    }
    expect(listed(other), f"what has another gradient than the loss ({said(config)})").equals(NOTHING)


def robots(rng: Rng) -> list[Config]:
    """Sizes of different robots and towers; no two chunks have the same length, and the last is longer than 12."""
    return [
        {"action_dim": 2, "horizon": 1, "state_dim": 1, "vision_width": 64, "width": 64},
        {"action_dim": 7, "horizon": rng.integer(2, 9), "state_dim": 9, "vision_width": 48, "width": 32},
        {"action_dim": 32, "horizon": rng.integer(2, 5), "state_dim": 32, "vision_width": 64, "width": 96},
        {"action_dim": rng.integer(14, 31), "horizon": 5, "state_dim": 6, "vision_width": 48, "width": 64},
    ]


def said(config: Config) -> str:
    """The robot in words."""
    if config == TABLETOP:
        return "the tabletop robot"
    return f"chunks of {config['horizon']} x {config['action_dim']}, feature of {config['width']}"


def chunk_of(config: Config) -> int:
    """How many numbers are in a chunk of this robot."""
    return config["horizon"] * config["action_dim"]


def chunk_width(config: Config, shapes: Mapping[str, list[int]]) -> int | None:
    """How much of the first layer's width is neither the feature's nor the time's; None without such a layer."""
    shape = shapes.get("velocity.layers.0.weight", [])
    return shape[1] - config["width"] - TIME_WIDTH if len(shape) == 2 else None


def layer_shapes(config: Config) -> dict[str, list[int]]:
    """Weights and biases of the head by name."""
    chunk = chunk_of(config)
    widths = {"0": (config["width"] + chunk + TIME_WIDTH, HIDDEN), "2": (HIDDEN, HIDDEN), "4": (HIDDEN, chunk)}
    shapes: dict[str, list[int]] = {}
    for number, (columns, rows) in widths.items():
        shapes[f"velocity.layers.{number}.weight"] = [rows, columns]
        shapes[f"velocity.layers.{number}.bias"] = [rows]
    return shapes


def batch_for(rng: Rng, size: int, config: Config) -> dict[str, Tensor]:
    """A batch of this robot's shapes. The first steps of each chunk, a different number in each, are no padding."""
    shapes = {name: config[name] for name in ("horizon", "action_dim", "state_dim")}
    steps = rng.permutation(size)[:, None] % config["horizon"] + 1
    return {**random_batch(rng, size, **shapes), "action_is_pad": torch.arange(config["horizon"]) >= steps}
