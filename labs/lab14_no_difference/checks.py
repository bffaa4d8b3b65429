"""What must hold for an optimizer with groups. Runs in the grader's process and never sees the learner's code.

The group of each parameter is defined here independently, by the names of the trained policy's parameters. The reference trains the
healthy policy with these groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import TOLERANCE, close, expect_image_and_instruction_to_matter, listed, random_batch
from labs.vla.policy import Policy

BACKBONE, NEW = ("model.vision.", "model.language_model."), ("model.projector.", "model.proprioception.", "model.head.")
BACKBONE_LEARNING_RATE, LEARNING_RATE, WEIGHT_DECAY = 5e-4, 1e-3, 0.01
MAX_GRADIENT_NORM = 1.0
STEPS = 3
HEAD_SCALE = 30.0
"""Makes the actions of a fresh head as large as a trained one's, and larger."""
ROUNDING = 1e-6
"""A gradient that is zero, such as that of a key's bias, is rounding error for AdamW, which steps by its sign."""
OVERFIT_STEPS = 40
OVERFIT_BAR = 0.3
"""Share of the first loss that may be left."""
SMALLEST_MOVEMENT = 0.005
"""Relative to the size of a part. Weight decay alone moves it by 0.0002 in these steps."""
NOTHING = "nothing"
ADDED = {"gain": [7], "model.head.supervision.weight": [3, 5], "model.head.supervision.bias": [3]}
"""Shapes of the parameters that a larger policy has besides the shipped ones: all are new. One is beside the network."""


@check(
    kind="behaviour",
    title="Every trainable parameter is in exactly one group",
    property="The optimizer must hold each parameter that requires a gradient once, and no other tensor, also when a part of the policy is frozen, and when the policy has a parameter of its own beside the network, or the head another layer.",
    instrument="debugkit.check(policy, batch, optimizer=optimizer, select=['DK101'])",
)
def test_each_parameter_is_in_one_group(submission: Submission, rng: Rng) -> None:
    for frozen in ([], ["model.vision.embeddings."], [rng.choice(NEW)]):
        groups = submission.observe("groups", frozen=frozen, seed=rng.seed())
        wanted = {name for name in parameters() if not name.startswith(tuple(frozen))}
        expect_each_once(groups, wanted, f" (with {frozen[0]}* frozen)" if frozen else "")
    groups = submission.observe("groups_of_a_larger_policy", added=ADDED, seed=rng.seed())
    expect_each_once(groups, parameters().keys() | ADDED.keys(), f" (with {listed(ADDED)} added)")


@check(
    kind="behaviour",
    title="Every parameter has its learning rate and its weight decay",
    property="Vision tower and language model must have a learning rate of 5e-4, everything else 1e-3, whatever a new part is called; matrices a weight decay of 0.01, vectors none.",
    instrument="python -c 'from policy import *; print(build_optimizer(build_policy(0)))'",
)
def test_each_parameter_has_its_settings(submission: Submission, rng: Rng) -> None:
    for name in ("parameter_groups", "build_optimizer"):
        changed = submission.observe("changes_the_mode", function=name)
        expect(changed, f"whether {name} changes the policy's mode").is_false()
    expect_settings(submission.observe("groups", frozen=[], seed=rng.seed()))
    groups = submission.observe("groups_of_a_larger_policy", added=ADDED, seed=rng.seed())
    expect_settings(groups, f" (with {listed(ADDED)} added)")


@check(
    kind="behaviour",
    title="Training moves every part as its group says",
    property="Losses, clipped gradients and updates of a few steps must be those of AdamW with the table's groups, betas of 0.9 and 0.95, and gradients of at most norm 1.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_training_moves_every_part(submission: Submission, rng: Rng) -> None:
    batch, seed = random_batch(rng, rng.integer(3, 7)), rng.seed()
    # All errors have the same sign, so the gradient has a norm of 1.3 or more, and is clipped.
    batch["action"] = torch.tensor([0.3, 0.3, 3.0]).expand_as(batch["action"]).clone()
    seen = submission.observe("training", batch=batch, seed=seed, steps=STEPS)
    start = {f"model.{name}": value for name, value in Policy.from_base(seed=seed).named_parameters()}
    expect(listed(start.keys() ^ seen["before"].keys()), "what the policy lacks or has too many").equals(NOTHING)
    other = {name for name, value in start.items() if not torch.equal(seen["before"][name], value)}
    expect(listed(other), "what differs from the base, or from a head drawn from the seed").equals(NOTHING)
    still = {name for name, value in start.items() if torch.equal(seen["after"][name], value)}
    expect(listed(still), f"what {STEPS} steps did not move").equals(NOTHING)
    expect(seen["modes"], "whether the policy trains in training mode").equals([True])
    trained, losses = reference(batch, seed)
    expect(seen["losses"], "the losses before each step").close_to(losses, rtol=TOLERANCE)
    clipped = {name for name, value in trained.items() if not close(seen["gradients"][name], value.grad)}
    expect(listed(clipped), "what has another gradient after clipping").equals(NOTHING)
    moved = {
        name
        for name, value in trained.items()
        if value.grad.norm() > ROUNDING and not close(seen["after"][name] - start[name], value - start[name], rtol=0.05)
    }
    expect(listed(moved), f"what moved otherwise in {STEPS} steps of AdamW").equals(NOTHING)


@check(
    kind="invariant",
    title="The robot executes two actions of each chunk",
    property="`select_action` must return the first two actions of a chunk, one after the other, then those of the next chunk; `reset` begins a new one. The policy itself gives a loss where there are actions, else a chunk.",
    instrument="python -c 'from policy import *; from labs.vla.dataset import *; from labs.vla.policy import OBSERVATION_KEYS; b = collate(demonstrations(1, 1), [0]); seen = {name: b[name] for name in OBSERVATION_KEYS}; p = build_policy(0).eval(); print(p(**seen).action[0], *(p.select_action(seen) for _ in range(3)), sep=\"\\n\")'",
)
def test_robot_executes_two_actions(submission: Submission, rng: Rng) -> None:
    size, seed = rng.integer(2, 4), rng.seed()
    observations = [random_batch(rng, size) for _ in range(6)]
    given = {"observations": observations, "episodes": [0, 3], "head_scale": HEAD_SCALE, "seed": seed}
    seen = submission.observe("driven", **given)
    policy = Policy.from_base(seed=seed).eval()
    with torch.no_grad():
        policy.head.mlp[-1].weight.mul_(HEAD_SCALE)
    chunks = [policy.predict(batch) for batch in observations]
    wanted = [chunks[chunk][:, step] for chunk, step in ((0, 0), (0, 1), (2, 0), (3, 0), (3, 1), (5, 0))]
    for number, (action, right) in enumerate(zip(seen["actions"], wanted, strict=True), start=1):
        expect(action, f"action {number}, with a new episode at action 4,").close_to(right, rtol=1e-3, atol=1e-5)
    with torch.no_grad():
        expect(seen["loss"], "the policy's loss").close_to(policy(**observations[0]).loss, rtol=TOLERANCE)
    expect(seen["chunk"], "the policy's chunk").close_to(chunks[0], rtol=1e-3, atol=1e-5)
    expect(seen["loss without actions"], "the policy's loss without actions").equals(None)


@check(
    kind="invariant",
    title="Every parameter trains",
    property="Every parameter of the policy must require a gradient after its optimizer was built.",
    instrument="debugkit.check(policy, batch, select=['DK113'])",
)
def test_trainable_parameters_are_the_same(submission: Submission) -> None:
    required = submission.observe("trainable")
    expect(listed({name for name, trains in required.items() if not trains}), "what is frozen").equals(NOTHING)


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the predicted actions.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng)


@check(
    kind="outcome",
    title="The backbone learns too",
    property=f"{OVERFIT_STEPS} steps on one batch must move every part by more than {SMALLEST_MOVEMENT:.1%} of its size and leave less than {OVERFIT_BAR:.0%} of the loss.",
    instrument="lab run 14",
)
def test_backbone_learns(submission: Submission, seed: int) -> None:
    seen = submission.observe("overfitted", seed=seed, steps=OVERFIT_STEPS)
    moved = [seen["moved"].get(part.split(".")[1], 0.0) for part in (*BACKBONE, *NEW)]
    expect(moved, "the movement of each part").above(SMALLEST_MOVEMENT)
    expect(seen["losses"], "the losses").has_shape(OVERFIT_STEPS)
    expect(seen["losses"][-1] / seen["losses"][0], "the share of the first loss that is left").below(OVERFIT_BAR)


GROUPS = "test_each_parameter_has_its_settings/groups"


@wrong_fix(
    "everything_in_one_group",
    says="Everything trains now, but at one learning rate: the pretrained backbone moves as fast as the fresh head, which the groups should prevent.",
)
def recognise_one_group(evidence: Mapping[str, Any]) -> bool:
    filled = all(group["names"] for group in evidence[GROUPS])
    return filled and rates(evidence, BACKBONE) == rates(evidence, NEW) == {LEARNING_RATE} and holds_all(evidence)


@wrong_fix(
    "backbone_among_the_new",
    says="The backbone is trained, but in the wrong group: the one with its learning rate is still empty, because no name starts with the pattern.",
)
def recognise_wrong_group(evidence: Mapping[str, Any]) -> bool:
    among_the_new = rates(evidence, BACKBONE) == rates(evidence, NEW) == {LEARNING_RATE}
    return among_the_new and empty_rates(evidence) == {BACKBONE_LEARNING_RATE} and holds_all(evidence)


@wrong_fix(
    "everything_is_backbone",
    says="This pattern matches every parameter, so the new parts train at the backbone's learning rate, and their own groups are empty.",
)
def recognise_all_backbone(evidence: Mapping[str, Any]) -> bool:
    backbone = rates(evidence, BACKBONE) == rates(evidence, NEW) == {BACKBONE_LEARNING_RATE}
    return backbone and empty_rates(evidence) == {LEARNING_RATE} and holds_all(evidence)


@wrong_fix(
    "higher_learning_rate",
    says="The learning rate is larger now, but it belongs to a group without parameters, so it still makes no difference.",
)
def recognise_higher_rate(evidence: Mapping[str, Any]) -> bool:
    empty = empty_rates(evidence)
    return len(empty) == 1 and min(empty) > BACKBONE_LEARNING_RATE and not rates(evidence, BACKBONE)


@wrong_fix(
    "frozen_backbone",
    says="The parameters that were in no group are now frozen, so they are not reported as missing. But the backbone should learn, slowly.",
)
def recognise_frozen(evidence: Mapping[str, Any]) -> bool:
    required = evidence["test_trainable_parameters_are_the_same/trainable"]
    return {name for name, trains in required.items() if not trains} == {
        name for name in required if name.startswith(BACKBONE)
    }


def expect_each_once(groups: Sequence[Mapping[str, Any]], wanted: Set[str], where: str = "") -> None:
    """Each of the wanted parameters must be in one of the groups, and no other tensor."""
    times = Counter(name for group in groups for name in group["names"])
    expect(listed({name for name in wanted if times[name] == 0}), f"what trains and is in no group{where}").equals(
        NOTHING
    )
    expect(listed({name for name in wanted if times[name] > 1}), f"what is held twice{where}").equals(NOTHING)
    expect(listed(set(times) - wanted), f"what is held and does not train{where}").equals(NOTHING)


def expect_settings(groups: Sequence[Mapping[str, Any]], where: str = "") -> None:
    """Each parameter that a group holds must have its learning rate and its weight decay."""
    held = {name: group for group in groups for name in group["names"] if name in parameters() or name in ADDED}
    for what, key, wanted in (("learning rate", "lr", learning_rate), ("weight decay", "weight_decay", weight_decay)):
        other = {
            f"{name} ({held[name][key]:g} instead of {wanted(name):g})"
            for name in held
            if held[name][key] != wanted(name)
        }
        expect(listed(other), f"what has another {what}{where}").equals(NOTHING)


@cache
def parameters() -> dict[str, Tensor]:
    """The trained policy's parameters, by name."""
    return {f"model.{name}": parameter for name, parameter in Policy().named_parameters()}


def learning_rate(name: str) -> float:
    """The learning rate that a parameter must have."""
    return BACKBONE_LEARNING_RATE if name.startswith(BACKBONE) else LEARNING_RATE


def weight_decay(name: str) -> float:
    """The weight decay that a parameter must have."""
    shape = ADDED.get(name) or parameters()[name].shape
    return WEIGHT_DECAY if len(shape) >= 2 else 0.0


def rates(evidence: Mapping[str, Any], parts: Sequence[str]) -> set[float]:
    """The learning rates of the parameters of some parts."""
    groups = evidence[GROUPS]
    return {group["lr"] for group in groups if any(name.startswith(tuple(parts)) for name in group["names"])}


def empty_rates(evidence: Mapping[str, Any]) -> set[float]:
    """The learning rates of the groups without parameters."""
    return {group["lr"] for group in evidence[GROUPS] if not group["names"]}


def holds_all(evidence: Mapping[str, Any]) -> bool:
    """Whether the optimizer holds every parameter."""
    return {name for group in evidence[GROUPS] for name in group["names"]} == parameters().keys()


def reference(batch: Mapping[str, Tensor], seed: int) -> tuple[dict[str, Tensor], Tensor]:
    """The healthy policy's parameters after the steps, with the gradients of the last one, and the losses."""
    policy = Policy.from_base(seed=seed).train()
    named = {f"model.{name}": value for name, value in policy.named_parameters()}
    groups = [
        {"params": [value], "lr": learning_rate(name), "weight_decay": weight_decay(name)}
        for name, value in named.items()
    ]
    optimizer, losses = torch.optim.AdamW(groups, betas=(0.9, 0.95)), []
    for _ in range(STEPS):
        loss = policy(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRADIENT_NORM)
        optimizer.step()
        losses.append(loss.detach())
    return named, torch.stack(losses)
