"""What must hold for a pyramid of patches. Runs in the grader's process and never sees the learner's code.

The reference implements the docstring's pyramid independently. Both get the same random weights, so each output and gradient has one
correct value, and a wrong output shows what joined the way up instead of the detail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import (
    TOLERANCE,
    expect_equal,
    expect_frames_to_be_independent,
    expect_image_and_instruction_to_matter,
    listed,
    random_batch,
    relative_error,
)
from labs.vla.policy import Policy
from labs.vla.vision import Projector

WIDTH, SMALL = 8, 0.1
LOSS_BAR = 0.42
NOTHING = "nothing"

Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class Case:
    """A grid of patches, how many frames have one, and the mode of the module."""

    height: int
    width: int
    frames: int = 2
    training: bool = False

    def __str__(self) -> str:
        frames = "1 frame" if self.frames == 1 else f"{self.frames} frames"
        return f"{self.height} x {self.width}, {frames}, {'training' if self.training else 'evaluation'} mode"

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the grid."""
        return self.height, self.width


TABLETOP, ALONE, TRAINING = Case(4, 4), Case(4, 4, frames=1), Case(4, 6, frames=3, training=True)
CASES = (TABLETOP, ALONE, TRAINING, Case(7, 5), Case(3, 9, frames=1, training=True), Case(1, 2))
ONE_PATCH = Case(1, 1)
"""Both levels of the way up have the full size, but the detail joins once. Here it is its own mean over the grid."""


@check(
    kind="behaviour",
    title="The pyramid computes what its docstring says, on any grid",
    property="The output must be the way up plus the detail, added once, at the last level, in training and in evaluation, on square grids, others, and a single patch.",
    instrument="debugkit.check(policy, batch, select=['DK008'])",
)
def test_pyramid_equals_the_reference(submission: Submission, rng: Rng) -> None:
    everything = []
    for case in (*CASES, ONE_PATCH):
        weights, patches = random_weights(rng), patches_of(case, rng)
        given = {"weights": weights, "patches": patches, "size": list(case.size), "training": case.training}
        output = submission.observe("pyramid", **given)
        expect(what_joined(output, patches, case, weights), JOINS.format(case))
        everything.append((case, output, reference(patches, case, weights), patches, weights))
    for case, output, wanted, patches, weights in everything:
        joined = what_joined(output, patches, case, weights)
        if joined != OTHER:
            expect(joined, JOINS.format(case)).equals(CORRECT)
        expect_equal(output, wanted, f"the output ({case})")


@check(
    kind="behaviour",
    title="The gradient comes back on every path",
    property="Each part of the pyramid must get the reference's gradient; that of the detail path's output is exactly the gradient at the pyramid's output.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_gradient_comes_back(submission: Submission, rng: Rng) -> None:
    for case in CASES:
        weights, patches, upstream = random_weights(rng), patches_of(case, rng), patches_of(case, rng)
        given = {"weights": weights, "patches": patches, "size": list(case.size), "upstream": upstream}
        seen = submission.observe("differentiated", **given)
        found, wanted = seen["parameters"], gradients(patches, case, weights, upstream)
        parts = {name.split(".")[0] for name in wanted.keys() - {"patches"} - found.keys()}
        expect(listed(parts), f"which part has no gradient ({case})").equals(NOTHING)
        expect_equal(seen["detail"].flatten(2).mT, upstream, f"the gradient of the detail ({case})")
        for name, gradient in wanted.items():
            here = seen["patches"] if name == "patches" else found[name]
            expect_equal(here, gradient, f"the gradient of {name} ({case})")


@check(
    kind="invariant",
    title="A fresh pyramid is close to the identity",
    property="As built, the detail path must be an identity and the levels of the way up small, so that the pretrained projector can read every patch.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_starts_close_to_identity(submission: Submission, rng: Rng) -> None:
    patches = rng.normal(2, 16, 64, std=3.0)
    seen = submission.observe("fresh", patches=patches, size=[4, 4], seed=rng.seed())
    own, shapes = seen["parameters"], shapes_of(64)
    expect(listed(shapes.keys() - own.keys()), "what is missing from the pyramid").equals(NOTHING)
    expect(listed(own.keys() - shapes.keys()), "what the pyramid has too many").equals(NOTHING)
    other = {
        f"{name}: {list(own[name].shape)}, not {shape}"
        for name, shape in shapes.items()
        if list(own[name].shape) != shape
    }
    expect(listed(other), "what has another shape").equals(NOTHING)
    expect(listed(shapes.keys() - set(seen["trains"])), "what does not train").equals(NOTHING)
    expect(own["detail.weight"][..., 0, 0], "the detail path's weight").close_to(torch.eye(64))
    expect(own["detail.bias"], "the detail path's bias").close_to(torch.zeros(64))
    for level in ("up.0", "up.1"):
        size = own[f"{level}.channels.weight"].abs().mean() * 64**0.5
        expect(size, f"the mean weight of {level}, relative to PyTorch's largest").between(0.3 * SMALL, SMALL)
        expect(own[f"{level}.channels.bias"], f"the bias of {level}").close_to(torch.zeros(64))
    similar = F.cosine_similarity(seen["output"], patches, dim=-1)
    expect(similar.mean(), "the mean cosine similarity of input and output").at_least(0.7)


@check(
    kind="invariant",
    title="The policy uses the pyramid",
    property="The images must be the projector's output for the pyramid's, on the grid of the image, and every part must get a gradient. `build_policy` must give the pretrained base, and a pyramid and a head drawn from the seed.",
    instrument="python -c 'from policy import *; print(build_policy(0).pyramid)'",
)
def test_policy_uses_the_pyramid(submission: Submission, rng: Rng) -> None:
    case = Case(rng.integer(5, 8), rng.integer(2, 5))
    patches = rng.normal(2, case.height * case.width, 64)
    pixels = rng.normal(2, 3, 16 * case.height, 16 * case.width)
    seen = submission.observe("embedded", pixel_values=pixels, patches=patches, seed=rng.seed())
    projector = Projector(64, 64)
    projector.load_state_dict(within("projector.", seen))
    with torch.no_grad():
        wanted = projector(reference(patches, case, within("pyramid.", seen)))
    expect_equal(seen["images"], wanted, f"the images on a grid of {case.height} x {case.width}")
    idle = submission.observe("idle", batch=random_batch(rng, 3), seed=rng.seed())
    expect(listed(set(idle)), "what gets no gradient from the loss").equals(NOTHING)
    seed = rng.seed()
    one, again, another = (submission.observe("built", seed=number) for number in (seed, seed, seed + 1))
    changed = {name for name in one if not torch.equal(one[name], again[name])}
    expect(listed(changed), "what differs between two policies of one seed").equals(NOTHING)
    drawn = {name for name in one if name.startswith(("pyramid.", "head."))}
    same = {
        name for name in drawn if one[name].dim() > 1 and "detail" not in name and torch.equal(one[name], another[name])
    }
    expect(listed(same), "what is equal for two seeds").equals(NOTHING)
    base = dict(Policy.from_base().named_parameters())
    strange = {name for name in one.keys() - drawn if not torch.equal(one[name], base[name])}
    expect(listed(strange), "what differs from the pretrained base").equals(NOTHING)


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
    title="Frames are independent",
    property="The action predicted for a frame must be the same whatever else is in the batch.",
    instrument="debugkit.check(policy, batch, select=['DK305'])",
)
def test_frames_are_independent(submission: Submission, rng: Rng) -> None:
    expect_frames_to_be_independent(submission, rng)


@check(
    kind="outcome",
    title="The policy learns where the block is",
    property=f"After a short training the loss on held-out frames must be below {LOSS_BAR}.",
    instrument="lab run 05",
)
def test_policy_learns(submission: Submission, seed: int) -> None:
    expect(submission.observe("held_out_loss", seed=seed), "the loss on new frames").below(LOSS_BAR)


JOINS = "what joins the way up ({})"
CORRECT, OTHER = "the detail, once", "something else"


@wrong_fix(
    "added_twice",
    says="The detail is added twice: its values count double, and its gradient does too.",
)
def recognise_twice(evidence: Mapping[str, Any]) -> bool:
    return joined(evidence) == {"the detail, twice"}


@wrong_fix(
    "averaged_over_the_grid",
    says="A tensor with one number per channel fits every grid by broadcasting, but holds no detail: every patch gets the grid's mean.",
)
def recognise_mean(evidence: Mapping[str, Any]) -> bool:
    return joined(evidence) == {"the detail's mean over the grid"}


@wrong_fix(
    "on_every_level",
    says="Without the condition, the detail is resized and added to the coarse levels as well. It belongs to full resolution only.",
)
def recognise_every_level(evidence: Mapping[str, Any]) -> bool:
    return joined(evidence) == {"the detail, on every level"}


@wrong_fix(
    "in_place_of_the_way_up",
    says="The detail is now the whole output. The skip must be added to the way up: here, what the coarse levels computed is thrown away.",
)
def recognise_replaced(evidence: Mapping[str, Any]) -> bool:
    return joined(evidence) == {"the detail, in place of it"}


@wrong_fix(
    "counted_from_one",
    says="The detail joins, but the skip of the level below does not any more: counting from 1 makes one condition true and the other one false.",
)
def recognise_counted_from_one(evidence: Mapping[str, Any]) -> bool:
    return joined(evidence) == {"the detail, but no longer the skip of the level below"}


@wrong_fix(
    "detached",
    says="The values are correct, but no gradient goes back through them: the detail path stays an identity forever, and the vision tower learns through the coarse levels alone.",
)
def recognise_detached(evidence: Mapping[str, Any]) -> bool:
    seen = evidence["test_gradient_comes_back/differentiated"]
    others = {"down.0.channels.weight", "across.0.weight", "middle.channels.weight", "up.1.channels.weight"}
    return joined(evidence) == {CORRECT} and seen["detail"] is None and others <= seen["parameters"].keys()


def joined(evidence: Mapping[str, Any]) -> set[str]:
    """What joined the way up, in any of the cases with several patches."""
    return {evidence[f"test_pyramid_equals_the_reference/{JOINS.format(case)}"] for case in CASES}


def shapes_of(width: int) -> dict[str, list[int]]:
    """The shapes of the pyramid's parameters by name."""
    levels = ("down.0", "down.1", "middle", "up.0", "up.1")
    shapes = {
        f"{name}.weight": [width, width, 1, 1]
        for name in ("detail", "across.0", *(f"{one}.channels" for one in levels))
    }
    shapes |= {f"{name}.neighbours.weight": [width, 1, 3, 3] for name in levels}
    shapes |= {name.replace("weight", "bias"): [width] for name in shapes}
    return shapes | {f"{name}.norm.{kind}": [width] for name in levels for kind in ("weight", "bias")}


def random_weights(rng: Rng) -> dict[str, Tensor]:
    """Weights of which no path is an identity or close to zero."""
    return {name: rng.normal(*shape, std=0.5) for name, shape in shapes_of(WIDTH).items()}


def patches_of(case: Case, rng: Rng) -> Tensor:
    """Random patches (B, P, V) on the case's grid."""
    return rng.normal(case.frames, case.height * case.width, WIDTH)


def reference(
    patches: Tensor,
    case: Case,
    weights: Weights,
    *,
    every_level: bool = False,
    across: float = 1.0,
    way_up: float = 1.0,
    detail: float = 1.0,
    averaged: bool = False,
) -> Tensor:
    """The docstring's pyramid on patches (B, P, V), with the keywords' mistakes."""

    def conv(grid: Tensor, name: str, groups: int = 1) -> Tensor:
        weight = weights[f"{name}.weight"]
        return F.conv2d(grid, weight, weights[f"{name}.bias"], padding=weight.shape[-1] // 2, groups=groups)

    def mix(grid: Tensor, name: str) -> Tensor:
        normed = F.group_norm(grid, 1, weights[f"{name}.norm.weight"], weights[f"{name}.norm.bias"])
        return conv(F.gelu(conv(normed, f"{name}.neighbours", groups=grid.shape[1])), f"{name}.channels")

    grid = patches.mT.unflatten(2, case.size)
    own = conv(grid, "detail")
    own = own.mean(dim=(2, 3), keepdim=True) if averaged else own
    half = F.avg_pool2d(grid + mix(grid, "down.0"), 2, ceil_mode=True)
    quarter = F.avg_pool2d(half + mix(half, "down.1"), 2, ceil_mode=True)
    up = F.interpolate(mix(quarter, "middle"), size=half.shape[-2:])
    up = up + mix(up, "up.0") + across * conv(half, "across.0")
    up = up + F.interpolate(own, size=half.shape[-2:]) if every_level else up
    up = F.interpolate(up, size=case.size)
    up = way_up * (up + mix(up, "up.1")) + detail * own
    return up.flatten(2).mT


def what_joined(output: Any, patches: Tensor, case: Case, weights: Weights) -> str:
    """What the output contains in addition to the way up, in words."""
    candidates: dict[str, dict[str, Any]] = {
        CORRECT: {},
        "nothing": {"detail": 0.0},
        "the detail, twice": {"detail": 2.0},
        "the detail's mean over the grid": {"averaged": True},
        "the detail, on every level": {"every_level": True},
        "the detail, in place of it": {"way_up": 0.0},
        "the detail, but no longer the skip of the level below": {"across": 0.0},
    }
    for name, mistake in candidates.items():
        value = reference(patches, case, weights, **mistake)
        if isinstance(output, Tensor) and output.shape == value.shape and relative_error(output, value) < TOLERANCE:
            return name
    return OTHER


def gradients(patches: Tensor, case: Case, weights: Weights, upstream: Tensor) -> dict[str, Tensor]:
    """The reference's gradients of all parameters and of the patches, by name."""
    given = {name: value.clone().requires_grad_() for name, value in {**weights, "patches": patches}.items()}
    reference(given["patches"], case, given).backward(upstream)
    return {name: value.grad for name, value in given.items() if value.grad is not None}


def within(prefix: str, values: Weights) -> dict[str, Tensor]:
    """The values whose name begins with the prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
