"""What must hold for a policy with place codes on its patches. Runs in the grader's process.

The reference is the same policy elsewhere: on a second device, and in another policy that loaded its checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import (
    expect_frames_to_be_independent,
    expect_image_and_instruction_to_matter,
    expect_step_on_a_second_device,
    random_batch,
)

REACH, GAIN = 0.15, 0.5
LOSS_BAR = 0.3


@check(
    kind="behaviour",
    title="The step runs on a second device, forward and backward",
    property="With the policy and the batch on another device, no tensor may be left on the CPU, and forward and backward must both complete.",
    instrument="debugkit.simulate_device(policy, batch)",
)
def test_runs_on_a_second_device(submission: Submission, rng: Rng) -> None:
    expect_step_on_a_second_device(submission, random_batch(rng, rng.integer(2, 5)), rng.seed())


@check(
    kind="behaviour",
    title="A checkpoint restores the codes the policy was trained with",
    property="A policy built from another seed that loads the checkpoint must give every patch exactly the code it had.",
    instrument="debugkit.check(policy, batch, select=['DK005'])",
)
def test_checkpoint_restores_the_codes(submission: Submission, rng: Rng) -> None:
    submission.observe("held")
    for size in (1, rng.integer(2, 6)):
        patches, arm = rng.normal(size, 16, 64), rng.uniform(size, 2)
        seen = submission.observe("restored", patches=patches, arm=arm, seed=rng.integer(0, 10**6))
        expect(seen["restored"], "the coded patches of the loaded policy").close_to(seen["saved"])


@check(
    kind="behaviour",
    title="Codes belong to places, not to the sensor",
    property="Codes must depend on the seed, differ from patch to patch, have unit variance, and stay at their place when the camera is rotated.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_codes_are_codes_of_places(submission: Submission, rng: Rng) -> None:
    far, seed = torch.full((1, 2), 1e3), rng.seed()
    for side, width in ((4, 64), (rng.integer(5, 9), 32)):
        asked = {"arm": far, "seed": seed}
        nothing, patches = torch.zeros(1, side * side, width), rng.normal(1, side * side, width)
        codes = submission.observe("placed", patches=nothing, quarter_turns=0, **asked)
        expect(codes, "the codes").has_shape(1, side * side, width)
        expect(codes.square().mean() / GAIN**2, "the codes' variance").close_to(1.0, rtol=1e-3)
        apart = (codes[0][:, None] - codes[0][None]).norm(dim=-1) + 1e9 * torch.eye(side * side)
        expect(apart.min(), "the distance of the two nearest codes").above(1e-2)
        for turns in (0, 1, 2, 3):
            upright = patches.view(side, side, width).rot90(turns, dims=(0, 1)).reshape(1, side * side, width)
            given = submission.observe("placed", patches=patches, quarter_turns=turns, **asked)
            expect(given, f"patches of a camera rotated {turns} times").close_to(upright + codes, atol=1e-5)
        another = submission.observe("placed", patches=nothing, quarter_turns=0, arm=far, seed=seed + 1)
        expect(another, "the codes of another seed").differs_from(codes)


@check(
    kind="invariant",
    title="Gain and mark train, the codes do not",
    property="The place codes must have two trainable parameters with one number per channel, and an optimizer step must leave the codes themselves unchanged.",
    instrument="debugkit.check(policy, batch, select=['DK113'])",
)
def test_codes_stay_as_drawn(submission: Submission, rng: Rng) -> None:
    shapes = submission.observe("trainable")
    expect(sorted(shapes.values()), "the shapes of the place codes' trainable parameters").equals([[64], [64]])
    seen = submission.observe("after_a_step", batch=random_batch(rng, 4), seed=rng.integer(0, 10**6))
    expect(seen["after"], "the codes after a step").close_to(seen["before"], rtol=1e-3, atol=1e-3)


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the predicted actions.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng)


@check(
    kind="invariant",
    title="A frame does not depend on its neighbours",
    property="The action predicted for a frame must be the same whatever else is in the batch.",
    instrument="debugkit.check(policy, batch, select=['DK305'])",
)
def test_frames_are_independent(submission: Submission, rng: Rng) -> None:
    expect_frames_to_be_independent(submission, rng)


@check(
    kind="outcome",
    title="A loaded policy is as good as the trained one",
    property=f"After a short training, saved and loaded into another policy, the loss on held-out frames must be below {LOSS_BAR}.",
    instrument="lab run 04",
)
def test_loaded_policy_is_the_trained_one(submission: Submission, seed: int) -> None:
    loss = submission.observe("restored_after_training", seed=seed)
    expect(loss["restored"], "the loss of the loaded policy").below(LOSS_BAR)


@wrong_fix(
    "moved_in_forward",
    says="It runs on any device now. But the codes are in no checkpoint: a policy that loads one uses codes that its language model has never seen.",
)
def recognise_move(evidence: Mapping[str, Any]) -> bool:
    return runs(evidence) and loses_codes(evidence) and moved_late(evidence)


@wrong_fix(
    "not_persistent",
    says="A buffer with persistent=False moves with the policy but is left out of its checkpoint. Use it for values that the constructor can compute again; these codes are random.",
)
def recognise_not_persistent(evidence: Mapping[str, Any]) -> bool:
    return runs(evidence) and loses_codes(evidence) and not moved_late(evidence)


@wrong_fix(
    "trained_table",
    says="As a parameter the table moves and is saved, but it also trains: the codes drift with every step. Use a parameter for learnt values and a buffer for fixed ones.",
)
def recognise_trained(evidence: Mapping[str, Any]) -> bool:
    return [16, 64] in evidence["trainable"].values()


@wrong_fix(
    "same_codes_for_all",
    says="The constructor can compute these codes again only because every policy now has the same ones: a constant in the program replaces what the checkpoint should hold.",
)
def recognise_constant(evidence: Mapping[str, Any]) -> bool:
    seen = evidence.get("test_codes_are_codes_of_places/the codes of another seed")
    return seen is not None and torch.equal(seen, evidence["test_codes_are_codes_of_places/the codes"])


def runs(evidence: Mapping[str, Any]) -> bool:
    """Whether the step ran on the second device."""
    seen = evidence["second_device"]
    return not seen["strays"] and bool(seen["backward"])


def loses_codes(evidence: Mapping[str, Any]) -> bool:
    """Whether a loaded policy has other codes than the saved one."""
    seen: Mapping[str, Tensor] = evidence["restored"]
    return not torch.allclose(seen["saved"], seen["restored"], atol=1e-4)


def moved_late(evidence: Mapping[str, Any]) -> bool:
    """Whether the place codes still hold a plain tensor, which something in forward must have moved."""
    return evidence["held"]["plain"] != []
