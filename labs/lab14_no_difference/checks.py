"""What must hold for an optimizer with groups. Runs in the grader's process and never sees the learner's code.

The group of each parameter is defined here independently, by the names of the trained policy's parameters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_image_and_instruction_to_matter, random_batch
from labs.vla.policy import Policy

BACKBONE, NEW = ("model.vision.", "model.language_model."), ("model.projector.", "model.proprioception.", "model.head.")
BACKBONE_LEARNING_RATE, LEARNING_RATE, WEIGHT_DECAY = 5e-4, 1e-3, 0.01
OVERFIT_STEPS = 40
OVERFIT_BAR = 0.3
"""Share of the first loss that may be left."""
SMALLEST_MOVEMENT = 0.005
"""Of a part's size. Weight decay alone moves it by 0.0002 in these steps."""


@check(
    kind="behaviour",
    title="Every trainable parameter is in exactly one group",
    property="The optimizer must hold each parameter that requires a gradient once, and no other tensor, also when a part of the policy is frozen.",
    instrument="debugkit.check(policy, batch, optimizer=optimizer, select=['DK101'])",
)
def test_each_parameter_is_in_one_group(submission: Submission, rng: Rng) -> None:
    for frozen in ([], [rng.choice(NEW)], ["model.vision.embeddings."]):
        groups = submission.observe("groups", frozen=frozen, seed=rng.seed())
        if not frozen:
            expect(groups, "groups")
        times = Counter(name for group in groups for name in group["names"])
        wanted = [name for name in parameters() if not name.startswith(tuple(frozen))]
        lost = [name for name in wanted if times[name] == 0]
        expect(len(lost), f"the number of the {len(wanted)} trainable parameters in no group").equals(0)
        expect(sorted(name for name in wanted if times[name] > 1), "the list of parameters held twice").equals([])
        expect(sorted(set(times) - set(wanted)), "the list of tensors held that do not train").equals([])


@check(
    kind="behaviour",
    title="Every parameter has its learning rate and its weight decay",
    property="Vision tower and language model must have a learning rate of 5e-4, everything else 1e-3; matrices a weight decay of 0.01, vectors none.",
    instrument="python -c 'from policy import *; print(build_optimizer(build_policy(0)))'",
)
def test_each_parameter_has_its_settings(submission: Submission, rng: Rng) -> None:
    groups = submission.observe("groups", frozen=[], seed=rng.seed())
    held = {name: (group["lr"], group["weight_decay"]) for group in groups for name in group["names"]}
    expect(len(held), "the number of parameters in the optimizer").equals(len(parameters()))
    expect({name: rate for name, (rate, _) in held.items()}, "the learning rates").close_to(
        {name: learning_rate(name) for name in held}, rtol=1e-9, atol=0.0
    )
    expect({name: decay for name, (_, decay) in held.items()}, "the weight decays").close_to(
        {name: WEIGHT_DECAY if parameters()[name].ndim >= 2 else 0.0 for name in held}, rtol=1e-9, atol=0.0
    )


@check(
    kind="behaviour",
    title="The first step has the correct length",
    property="In its first step AdamW moves each value by the learning rate, whatever the gradient's size. Every part must move by its own learning rate.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_first_step_has_its_length(submission: Submission, rng: Rng) -> None:
    seen = submission.observe("first_step", batch=random_batch(rng, rng.integer(3, 7)), seed=rng.seed())
    before, after, gradient = seen["before"], seen["after"], seen["gradient"]
    for part in (*BACKBONE, *NEW):
        names = [name for name in before if name.startswith(part) and parameters()[name].ndim < 2]
        steps = [(after[name] - before[name]).abs()[gradient[name].abs() > 1e-5] for name in names]
        expect(len(names), f"the number of vectors in {part}*").above(0)
        moved = torch.cat(steps)
        expect(moved.numel(), f"the number of values in {part}* with a gradient").above(0)
        expect(moved.median(), f"how far the first step moved the vectors of {part}*").close_to(
            torch.tensor(learning_rate(part)), rtol=0.02, atol=0.0
        )


@check(
    kind="invariant",
    title="The same parameters are trained as before",
    property="Every parameter of the policy must require a gradient, and the policy must have the same parameters as before.",
    instrument="debugkit.check(policy, batch, select=['DK113'])",
)
def test_trainable_parameters_are_the_same(submission: Submission) -> None:
    required = submission.observe("trainable")
    expect(sorted(required), "the list of parameters").equals(sorted(parameters()))
    frozen = sorted(name for name, trains in required.items() if not trains)
    expect(len(frozen), "the number of frozen parameters").equals(0)


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


GROUPS = "test_each_parameter_is_in_one_group/groups"


@wrong_fix(
    "everything_in_one_group",
    says="Everything trains now, but at one learning rate: the pretrained backbone moves as fast as the fresh head, which the groups should prevent.",
)
def recognise_one_group(evidence: Mapping[str, Any]) -> bool:
    return rates(evidence, BACKBONE) == {LEARNING_RATE} and len(evidence[GROUPS]) < 4


@wrong_fix(
    "backbone_among_the_new",
    says="The backbone is trained, but in the wrong group: the one with its learning rate is still empty, because no name starts with the pattern.",
)
def recognise_wrong_group(evidence: Mapping[str, Any]) -> bool:
    empty = any(not group["names"] for group in evidence[GROUPS])
    return rates(evidence, BACKBONE) == {LEARNING_RATE} and empty


@wrong_fix(
    "everything_is_backbone",
    says="This pattern matches every parameter, so the new parts train at the backbone's learning rate, and their own groups are empty.",
)
def recognise_all_backbone(evidence: Mapping[str, Any]) -> bool:
    return rates(evidence, BACKBONE) == rates(evidence, NEW) == {BACKBONE_LEARNING_RATE}


@wrong_fix(
    "frozen_backbone",
    says="The parameters that were in no group are now frozen, so they are not reported as missing. But the backbone should learn, slowly.",
)
def recognise_frozen(evidence: Mapping[str, Any]) -> bool:
    required = evidence["test_trainable_parameters_are_the_same/trainable"]
    return not any(trains for name, trains in required.items() if name.startswith(BACKBONE))


def parameters() -> dict[str, Tensor]:
    """The trained policy's parameters, by name."""
    return {f"model.{name}": parameter for name, parameter in Policy().named_parameters()}


def learning_rate(name: str) -> float:
    """The learning rate that a parameter must have."""
    return BACKBONE_LEARNING_RATE if name.startswith(BACKBONE) else LEARNING_RATE


def rates(evidence: Mapping[str, Any], parts: Sequence[str]) -> set[float]:
    """The learning rates of the parameters of some parts."""
    groups = evidence[GROUPS]
    return {group["lr"] for group in groups if any(name.startswith(tuple(parts)) for name in group["names"])}
