"""What must hold for a policy whose patches are standardised. Runs in the grader's process; never sees the learner's code.

The reference starts from the patches that the learner's own vision tower returned. From them it computes the running statistics and the
projector's expected input independently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import (
    PARTS,
    expect_frames_to_be_independent,
    expect_image_and_instruction_to_matter,
    expect_success_rate,
    random_batch,
)

MOMENTUM = 0.1
SMALLEST_STD = 1e-3
EPISODES = 50
SUCCESS_BAR = 0.8


@check(
    kind="behaviour",
    title="The projector's input is what the docstring says",
    property="The projector must receive patches standardised with the running statistics, in training and in evaluation.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_patches_are_standardised(submission: Submission, rng: Rng) -> None:
    sizes = (rng.integer(2, 5), rng.integer(5, 9))
    for size in sizes:
        images, last = rng.normal(3, size, 3, 64, 64), rng.normal(size, 3, 64, 64)
        seen = submission.observe("patches_through_training", images=images, last=last, seed=rng.seed())
        expect(explain(seen), "what reached the projector")
        wanted, mean, std = running_standardise(seen["patches"])
        expect(seen["standardised"], "what reached the projector in training").close_to(wanted, rtol=1e-3, atol=1e-4)
        expect(seen["standardised_last"], "what reached the projector in evaluation").close_to(
            (seen["patches_last"] - mean) / std, rtol=1e-3, atol=1e-4
        )
    hardly_varies = rng.normal(sizes[0], 16, 64)
    hardly_varies[..., 7] = 0.5 + rng.normal(sizes[0], 16, std=1e-5)
    given = submission.observe("standardised_by_itself", patches=hardly_varies)
    wanted, _, _ = running_standardise(hardly_varies[None])
    expect(given, "the output for a channel that hardly varies").close_to(wanted[0], rtol=1e-2, atol=1e-3)


@check(
    kind="behaviour",
    title="The gradient reaches every layer of the vision tower",
    property="After one backward pass every parameter of the vision tower must have a gradient, and that of every weight must not be zero.",
    instrument="debugkit.find_graph_cut(policy, batch)",
)
def test_gradient_reaches_the_tower(submission: Submission, rng: Rng) -> None:
    seen = submission.observe("gradients", batch=random_batch(rng, rng.integer(2, 7)), seed=rng.seed())
    vision = {name: norm for name, norm in seen["norms"].items() if name.startswith("vision.")}
    expect(len(vision), "the number of parameters in the vision tower").at_least(15)
    without = sorted(name for name, norm in vision.items() if norm < 0)
    expect(len(without), "the number of vision parameters without a gradient").equals(0)
    # A key's bias moves every score of a row alike, which softmax ignores: its gradient is zero in any correct policy.
    weights = [norm for name, norm in vision.items() if name.endswith("weight")]
    expect(weights, "the gradient norm of each weight in the vision tower").above(1e-8)


@check(
    kind="behaviour",
    title="The tower gets the gradient of the action loss, at its true size",
    property="The gradient at the tower's output must be that at the projector's input, divided by the running standard deviation: that is the derivative of standardising.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_gradient_has_its_true_size(submission: Submission, rng: Rng) -> None:
    seen = submission.observe("gradients", batch=random_batch(rng, rng.integer(3, 7)), seed=rng.seed())
    expect(seen["reaches_projector"], "the projector's input requires a gradient,").is_true()
    expect(seen["at_projector"] is not None, "the projector's input got a gradient,").is_true()
    expect(seen["at_tower"] is not None, "the tower's output got a gradient,").is_true()
    wanted = seen["at_projector"] / seen["std"].clamp(min=SMALLEST_STD)
    scale = float(wanted.abs().max())
    expect(seen["at_tower"] / scale, "the gradient of the patches").close_to(wanted / scale, rtol=1e-3, atol=1e-4)


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
    title="In evaluation a frame does not depend on its neighbours",
    property="The action predicted for a frame must be the same whatever else is in the batch.",
    instrument="debugkit.check(policy, batch, select=['DK305'])",
)
def test_frames_are_independent(submission: Submission, rng: Rng) -> None:
    expect_frames_to_be_independent(submission, rng)


@check(
    kind="invariant",
    title="The same parameters are trained as before",
    property="Every parameter of the policy must require a gradient, and the policy must have the same parts as before.",
    instrument="debugkit.check(policy, batch, select=['DK113'])",
)
def test_trainable_parameters_are_the_same(submission: Submission) -> None:
    required = submission.observe("trainable")
    expect(sorted(name for name, requires in required.items() if not requires), "the list of frozen parameters").equals(
        []
    )
    parts = {name.partition(".")[0] for name in required}
    expect(sorted(parts), "the list of trained parts").equals(PARTS)


@check(
    kind="outcome",
    title="The tower learns, and the robot finds the block",
    property=f"After a short training the vision tower must have moved, and at least {SUCCESS_BAR:.0%} of {EPISODES} episodes must succeed.",
    instrument="lab run 12",
)
def test_robot_finds_the_block(submission: Submission, seed: int) -> None:
    result = submission.observe("trained_rollout", seed=seed, episodes=EPISODES)
    expect(result["moved"]["vision"], "the vision tower's relative movement").above(0.01)
    expect_success_rate(result["success"], episodes=EPISODES, at_least=SUCCESS_BAR)


GRADIENT = "test_gradient_has_its_true_size/gradients"
PATCHES = "test_patches_are_standardised/what reached the projector"


@wrong_fix(
    "requires_grad_on_the_copy",
    says="The copy now requires a gradient and gets one. But it is a leaf: the graph ends there, so the tower still gets none.",
)
def recognise_leaf(evidence: Mapping[str, Any]) -> bool:
    seen = evidence[GRADIENT]
    return (
        seen["reaches_projector"]
        and seen["at_tower"] is None
        and all(norm < 0 for name, norm in seen["norms"].items() if name.startswith("vision."))
    )


@wrong_fix(
    "loss_of_its_own",
    says="The tower has a gradient now, but not from the actions: no gradient that goes through the projector reaches it. It learns something other than the task.",
)
def recognise_second_loss(evidence: Mapping[str, Any]) -> bool:
    seen = evidence[GRADIENT]
    return not seen["reaches_projector"] and seen["at_tower"] is not None


@wrong_fix(
    "straight_through",
    says="The forward pass is correct and the tower gets a gradient, but it is the projector's gradient, unchanged: the division by the standard deviation is missing.",
)
def recognise_straight_through(evidence: Mapping[str, Any]) -> bool:
    seen = evidence[GRADIENT]
    return evidence[PATCHES] == "standardised patches" and torch.allclose(
        seen["at_tower"], seen["at_projector"], rtol=1e-3, atol=1e-9
    )


@wrong_fix(
    "no_standardising",
    says="The gradient reaches the tower only because the projector now reads the raw patches. This policy must standardise them.",
)
def recognise_no_standardising(evidence: Mapping[str, Any]) -> bool:
    return evidence[PATCHES] == "the raw patches"


@wrong_fix(
    "batch_statistics",
    says="The patches are standardised with the statistics of their own batch, not with the running statistics: the features of a frame would depend on the rest of its batch.",
)
def recognise_batch_statistics(evidence: Mapping[str, Any]) -> bool:
    return evidence[PATCHES] == "patches standardised by their own batch"


def running_standardise(patches: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The reference: the patches (N, B, P, V) of N training batches, standardised; the statistics (V,) after the last."""
    mean, std, out = torch.zeros(()), torch.ones(()), []
    for index, batch in enumerate(patches.double()):
        rows = batch.flatten(0, 1)
        share = 1.0 if index == 0 else MOMENTUM
        mean = mean + share * (rows.mean(dim=0) - mean)
        std = std + share * (rows.std(dim=0) - std)
        out.append((batch - mean) / std.clamp(min=SMALLEST_STD))
    return torch.stack(out).float(), mean.float(), std.clamp(min=SMALLEST_STD).float()


def explain(seen: Mapping[str, Tensor]) -> str:
    """Which tensor the projector received, in words."""
    patches, given = seen["patches"], seen["standardised"]
    mean, std = patches.mean(dim=(1, 2), keepdim=True), patches.flatten(1, 2).std(dim=1)[:, None, None]
    candidates = {
        "standardised patches": running_standardise(patches)[0],
        "the raw patches": patches,
        "patches standardised by their own batch": (patches - mean) / std,
    }
    for name, value in candidates.items():
        if given.shape == value.shape and torch.allclose(given, value, rtol=1e-3, atol=1e-4):
            return name
    return "something else"
