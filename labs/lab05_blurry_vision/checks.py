"""What must hold for a pyramid of patches. Runs in the grader's process and never sees the learner's code.

The reference implements the docstring's pyramid independently and runs it with the weights of the learner's module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_frames_to_be_independent, expect_image_and_instruction_to_matter

LOSS_BAR = 0.42


@check(
    kind="behaviour",
    title="The pyramid computes what its docstring says, at three sizes",
    property="The output must be the way up plus the detail, added once at full resolution, on square grids and others.",
    instrument="debugkit.check(policy, batch, select=['DK008'])",
)
def test_pyramid_equals_the_reference(submission: Submission, rng: Rng) -> None:
    for size in three_sizes(rng):
        patches = rng.normal(rng.integer(1, 4), size[0] * size[1], 8)
        seen = submission.observe("pyramid", patches=patches, size=list(size), seed=rng.seed())
        way_up, detail = reference(patches, size, seen["weights"])
        expect(what_was_added(seen["output"], way_up, detail), "what joins the way up")
        expect(seen["output"], f"the output on a grid of {size[0]} x {size[1]}").close_to(
            way_up + detail, rtol=1e-3, atol=1e-4
        )


@check(
    kind="behaviour",
    title="A change of the detail changes the output",
    property="Noise that is added to the detail path's output must appear in the pyramid's output once, unscaled and at the same patches.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_detail_moves_the_output(submission: Submission, rng: Rng) -> None:
    for size in three_sizes(rng):
        patches, noise = rng.normal(2, size[0] * size[1], 8), rng.normal(2, 8, *size)
        seen = submission.observe("perturbed", patches=patches, size=list(size), noise=noise, seed=rng.seed())
        expect(seen["after"] - seen["before"], "how far the output moved").close_to(
            noise.flatten(2).transpose(1, 2), rtol=1e-3, atol=1e-3
        )


@check(
    kind="behaviour",
    title="The gradient reaches the detail path",
    property="The detail path's output must have full resolution, and its gradient must be exactly the gradient at the pyramid's output.",
    instrument="debugkit.watch_shapes(policy, {'pyramid.detail': 'B 64 h w'})",
)
def test_gradient_comes_back(submission: Submission, rng: Rng) -> None:
    for size in three_sizes(rng):
        patches, upstream = rng.normal(2, size[0] * size[1], 8), rng.normal(2, size[0] * size[1], 8)
        seen = submission.observe("hooked", patches=patches, size=list(size), upstream=upstream, seed=rng.seed())
        expect(seen["shape"], "the shape of the detail").equals([2, 8, *size])
        expect(seen["gradient"] is not None, "the detail gets a gradient,").is_true()
        expect(seen["gradient"], "the gradient of the detail").close_to(
            upstream.transpose(1, 2).unflatten(2, size), rtol=1e-3, atol=1e-4
        )
        expect(seen["without"], "the list of parameters without a gradient").equals([])


@check(
    kind="invariant",
    title="A fresh pyramid is close to the identity",
    property="As built, the pyramid must return every patch nearly unchanged, so that the pretrained projector can read it.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_starts_close_to_identity(submission: Submission, rng: Rng) -> None:
    patches = rng.normal(2, 16, 64, std=3.0)
    given = submission.observe("fresh", patches=patches, size=[4, 4], seed=rng.seed())
    expect(given, "the output of a fresh pyramid").has_shape(2, 16, 64)
    similar = F.cosine_similarity(given, patches, dim=-1)
    expect(similar.mean(), "the mean cosine similarity of input and output").at_least(0.7)


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
    title="Frames are independent, and the same parts train",
    property="The action of a frame must not depend on its neighbours, and the pyramid's five parts must all be trainable.",
    instrument="debugkit.check(policy, batch, select=['DK305', 'DK113'])",
)
def test_frames_and_parameters(submission: Submission, rng: Rng) -> None:
    counts = submission.observe("trainable")
    expect(sorted(name for name, count in counts.items() if count), "the parts of the pyramid that train").equals(
        ["across", "detail", "down", "middle", "up"]
    )
    expect(sum(counts.values()), "the number of trainable values in the pyramid").between(20_000, 40_000)
    expect_frames_to_be_independent(submission, rng)


@check(
    kind="outcome",
    title="The policy learns where the block is",
    property=f"After a short training the loss on held-out frames must be below {LOSS_BAR}.",
    instrument="lab run 05",
)
def test_policy_learns(submission: Submission, seed: int) -> None:
    expect(submission.observe("held_out_loss", seed=seed), "the loss on new frames").below(LOSS_BAR)


@wrong_fix(
    "added_twice",
    says="The detail is added twice: once in the loop and once after it. Its gradient is doubled too.",
)
def recognise_twice(evidence: Mapping[str, Any]) -> bool:
    return evidence[JOINS] == "the detail, twice"


@wrong_fix(
    "averaged_over_the_grid",
    says="A tensor with one number per channel fits every grid by broadcasting, but holds no detail: every patch gets the grid's mean.",
)
def recognise_mean(evidence: Mapping[str, Any]) -> bool:
    return evidence[JOINS] == "the detail's mean over the grid"


@wrong_fix(
    "on_every_level",
    says="Without the condition, the detail is resized and added to the coarse levels as well. It belongs to full resolution only.",
)
def recognise_every_level(evidence: Mapping[str, Any]) -> bool:
    return evidence[JOINS] == "the detail, and more"


@wrong_fix(
    "in_place_of_the_way_up",
    says="The detail is now the whole output. The skip must be added to the way up: here, what the coarse levels computed is thrown away.",
)
def recognise_replaced(evidence: Mapping[str, Any]) -> bool:
    return evidence[JOINS] == "nothing: it is the detail alone"


@wrong_fix(
    "detached",
    says="The values are correct, but no gradient goes back through them: the detail path stays an identity for ever, and the vision tower learns through the coarse levels alone.",
)
def recognise_detached(evidence: Mapping[str, Any]) -> bool:
    return evidence[JOINS] == "the detail" and evidence["hooked"]["gradient"] is None


JOINS = "test_pyramid_equals_the_reference/what joins the way up"


def three_sizes(rng: Rng) -> list[tuple[int, int]]:
    """Height and width of three grids: the tabletop's, a wide one, and one with odd sides."""
    return [(4, 4), (4, rng.integer(5, 9)), (2 * rng.integer(2, 5) + 1, 2 * rng.integer(1, 4) + 3)]


def reference(patches: Tensor, size: tuple[int, int], weights: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The way up without the detail, and the detail, both (B, P, V)."""

    def conv(grid: Tensor, name: str, groups: int = 1) -> Tensor:
        weight = weights[f"{name}.weight"]
        return F.conv2d(grid, weight, weights[f"{name}.bias"], padding=weight.shape[-1] // 2, groups=groups)

    def mix(grid: Tensor, name: str) -> Tensor:
        normed = F.group_norm(grid, 1, weights[f"{name}.norm.weight"], weights[f"{name}.norm.bias"])
        return conv(F.gelu(conv(normed, f"{name}.neighbours", groups=grid.shape[1])), f"{name}.channels")

    grid = patches.transpose(1, 2).reshape(len(patches), patches.shape[2], *size)
    detail = conv(grid, "detail")
    half = F.avg_pool2d(grid + mix(grid, "down.0"), 2, ceil_mode=True)
    quarter = F.avg_pool2d(half + mix(half, "down.1"), 2, ceil_mode=True)
    up = F.interpolate(mix(quarter, "middle"), size=half.shape[-2:])
    up = up + mix(up, "up.0") + conv(half, "across.0")
    up = F.interpolate(up, size=size)
    up = up + mix(up, "up.1")
    return up.flatten(2).transpose(1, 2), detail.flatten(2).transpose(1, 2)


def what_was_added(output: Tensor, way_up: Tensor, detail: Tensor) -> str:
    """What the output contains in addition to the way up, in words."""
    candidates = {
        "the detail": way_up + detail,
        "nothing": way_up,
        "the detail, twice": way_up + 2 * detail,
        "the detail's mean over the grid": way_up + detail.mean(dim=1, keepdim=True),
        "nothing: it is the detail alone": detail,
    }
    for name, value in candidates.items():
        if output.shape == value.shape and torch.allclose(output, value, rtol=1e-3, atol=1e-4):
            return name
    if output.shape != way_up.shape:
        return "another shape"
    share = torch.linalg.lstsq(detail.flatten()[:, None], (output - way_up).flatten()[:, None]).solution.item()
    return "the detail, and more" if abs(share - 1) < 0.5 else "something else"
