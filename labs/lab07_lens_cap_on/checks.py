"""Requirements for patches cut by hand. Runs in the grader's process; judges data, and never sees the code.

The reference cuts one patch after another out of the image, and embeds them with the strided convolution of SigLIP's own
forward. Images are random, so a row of numbers shows which pixels are in it, and in which order.
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
    close,
    expect_equal,
    expect_frames_to_be_independent,
    expect_image_and_instruction_to_matter,
    expect_success_rate,
    listed,
    random_batch,
)
from labs.patch_orders import cut, in_another_order, misplaced, numbered_images, numbers, orders_of
from labs.policy_comparison import expect_gradients_of
from labs.vla.policy import Policy, PolicyConfig
from labs.vla.randomness import private_randomness

EPISODES, SUCCESS_BAR = 50, 0.8
VIEWS = {
    "channels last": "with the channels last in memory",
    "cropped": "cropped out of larger ones",
    "transposed": "stored column by column",
    "expanded": "where all frames are the same memory",
}
"""How images are stored that are not contiguous."""


@dataclass(frozen=True)
class Case:
    """Images of one shape, and the size of their patches."""

    rows: int
    columns: int
    size: int
    channels: int = 3
    frames: int = 2

    def __str__(self) -> str:
        colours = {1: "grey", 3: "RGB"}.get(self.channels, f"{self.channels}-channel")
        return f"images of {self.height} x {self.width} pixels, {colours}, in patches of {self.size}"

    @property
    def height(self) -> int:
        """In pixels."""
        return self.rows * self.size

    @property
    def width(self) -> int:
        """In pixels."""
        return self.columns * self.size

    def images(self, rng: Rng) -> Tensor:
        """Random images (B, C, H, W) in which no two numbers are the same."""
        return numbered_images(rng, self.frames, self.channels, self.height, self.width)


TABLETOP = Case(4, 4, 16)
CASES = (
    TABLETOP,
    Case(4, 6, 16, frames=1),
    Case(5, 3, 8),
    Case(3, 3, 4, channels=1),
    Case(2, 7, 5, channels=4),
    Case(6, 2, 3, channels=2, frames=3),
    Case(1, 1, 8),
)


@check(
    kind="behaviour",
    title="A pixel belongs to one patch",
    property="When one pixel changes, in all of its channels, exactly the row of the patch around it must change. If other rows change, their patches hold pixels of other places.",
    instrument="python -c 'from policy import *; import torch; x = torch.zeros(1, 3, 64, 64); y = patchify(x, 16); x[:, :, 20, 40] = 1; print((patchify(x, 16) != y).any(2).nonzero())'",
)
def test_one_pixel_moves_one_patch(submission: Submission, rng: Rng) -> None:
    for case in CASES:
        anywhere = rng.integer(0, case.height), rng.integer(0, case.width)
        upper_right = rng.integer(0, case.size), case.width - 1 - rng.integer(0, case.size)
        for y, x in (anywhere, upper_right):
            before, frame = case.images(rng), rng.integer(0, case.frames)
            after = before.clone()
            after[frame, :, y, x] += 1
            rows = [submission.observe("patches", images=images, size=case.size) for images in (before, after)]
            for there in rows:
                expect(there, f"the rows for {case}").has_shape(*cut(before, case.size).shape)
            changed = ((rows[1] - rows[0]).abs() > 0.5).any(dim=2)
            patch = case.columns * (y // case.size) + x // case.size
            said = f"with the pixel y {y}, x {x} of {case}"
            expect(numbers(changed[frame]), f"which rows change {said}").equals(str(patch))
            changed[frame] = False
            expect(int(changed.sum()), f"how many rows of other images change {said}").equals(0)


@check(
    kind="behaviour",
    title="A row is its patch: channels, then pixels in reading order",
    property="Row n must hold the n-th patch in reading order: the first channel's pixels from left to right and from top to bottom, then the second's. That is how a convolution's weights are ordered, for square images and others. The rows must have the images' dtype, float64 too, and no pixel may be rounded. How the images are stored in memory must not matter.",
    instrument="python -c 'from policy import *; import torch; x = torch.arange(72.0).view(1, 3, 4, 6); print(x, patchify(x, 2))'",
)
def test_rows_are_patches(submission: Submission, rng: Rng) -> None:
    seen = []
    for case in CASES:
        images = case.images(rng)
        rows = submission.observe("patches", images=images, size=case.size)
        expect(orders_of(rows, images, case.size), f"possible orders: {case}")
        seen.append((case, rows, images))
    for case, rows, images in seen:
        expect(rows, f"the rows for {case}").has_shape(*cut(images, case.size).shape)
        expect(misplaced(rows, images, case.size), f"what is from another patch ({case})").equals("nothing")
        expect(in_another_order(rows, images, case.size), f"what is out of order ({case})").equals("nothing")
    for case in (TABLETOP, CASES[2]):
        images = rng.normal(case.frames, case.channels, case.height, case.width, dtype=torch.float64)
        rows = submission.observe("patches", images=images, size=case.size)
        expect(rows, f"the tensor of rows for float64 {case}").equals(cut(images, case.size))
    for case in (TABLETOP, CASES[2]):
        images = case.images(rng)
        seen = submission.observe("patches_of_views", images=images, size=case.size)
        for view, how in VIEWS.items():
            wanted = cut(images[:1].expand_as(images) if view == "expanded" else images, case.size)
            expect(seen[view], f"the tensor of rows for {case}, {how},").equals(wanted)


@check(
    kind="behaviour",
    title="The embedded image is that of the strided convolution",
    property="For any weights, the policy must make of an image what SigLIP's convolution, the position table on the grid of the image, encoder and projector make of it: for square images, wide ones and tall ones.",
    instrument="python -c 'from policy import *; import torch; from labs.vla.policy import Policy; x = torch.randn(1, 3, 64, 64); print((build_policy(0).embed_images(x) - Policy.from_base().embed_images(x)).abs().max())'",
)
def test_image_is_embedded_as_by_the_convolution(submission: Submission, rng: Rng) -> None:
    own, other = {}, {"patch_size": 8, "image_size": 40}
    for sizes, rows, columns, frames in (
        *((own, *shape) for shape in ((4, 4, 2), (4, 4, 1), (3, 7, 2), (6, 2, 1), (1, 1, 3), (2, 8, 1))),
        *((other, *shape) for shape in ((5, 5, 1), (2, 4, 2), (25, 1, 1))),
    ):
        policy = random_policy(PolicyConfig(**sizes), rng)
        size = policy.config.patch_size
        pixels = rng.normal(frames, 3, size * rows, size * columns)
        found = submission.observe("embedded", weights=policy.state_dict(), pixel_values=pixels, sizes=sizes)
        said = f"the embedded image of {size * rows} x {size * columns} pixels in patches of {size}"
        expect_equal(found, embedded(policy, pixels), said)


@check(
    kind="behaviour",
    title="Every parameter has the healthy policy's gradient",
    property="The loss of a batch must give each parameter, and each pixel, the gradient that it gives the healthy policy, whose tower convolves the image.",
    instrument="python -c 'from policy import *; import torch; from labs.vla.policy import Policy; x = torch.randn(1, 3, 64, 64, requires_grad=True); [print([g if g is None else g.norm().item() for g in torch.autograd.grad(p.embed_images(x).square().sum(), [x, *p.vision.embeddings.parameters()], allow_unused=True)]) for p in (build_policy(0), Policy.from_base())]'",
)
def test_gradients_are_the_healthy_ones(submission: Submission, rng: Rng) -> None:
    for size in (3, 1):
        batch, seed = random_batch(rng, size), rng.seed()
        found = submission.observe("gradients", batch=batch, seed=seed)
        policy, pixels = Policy.from_base(seed=seed).train(), batch["pixel_values"].clone().requires_grad_()
        policy(**{**batch, "pixel_values": pixels}).loss.backward()
        said = f"of {size} frame{'s' * (size > 1)}"
        expect_gradients_of(policy, found, said)
        expect_equal(found.get("the images"), pixels.grad, f"the images' gradient in a batch {said}")


@check(
    kind="invariant",
    title="An image shifted by one patch has the same rows, shifted",
    property="Moving the image by one patch, across or down, must move the rows by one place on the grid and change nothing in them.",
    instrument="python -c 'from policy import *; import torch; x = torch.randn(1, 3, 64, 64); print((patchify(x.roll(16, 3), 16)[0, 1] - patchify(x, 16)[0, 0]).abs().max())'",
)
def test_shift_moves_the_rows(submission: Submission, rng: Rng) -> None:
    for case in CASES:
        images = case.images(rng)
        rows = submission.observe("patches", images=images, size=case.size)
        expect(rows, f"the rows for {case}").has_shape(*cut(images, case.size).shape)
        for direction, axis in (("across", 3), ("down", 2)):
            moved = submission.observe("patches", images=images.roll(case.size, axis), size=case.size)
            grid = rows.unflatten(1, (case.rows, case.columns)).roll(1, axis - 1).flatten(1, 2)
            expect(moved, f"the rows for {case}, shifted {direction},").has_shape(*grid.shape)
            other = sum(not close(one, wanted) for one, wanted in zip(moved[0], grid[0], strict=True))
            expect(other, f"how many rows are not the moved ones ({case}, shifted {direction})").equals(0)


@check(
    kind="invariant",
    title="The position table fits the grid of the image",
    property="On its own grid the table must be unchanged. For another grid, also one of as many patches, it must be resized bilinearly, rows and columns in their places.",
    instrument="python -c 'from policy import *; import torch; print(resized_positions(torch.arange(16.).view(16, 1), (2, 6)).view(2, 6))'",
)
def test_positions_fit_the_grid(submission: Submission, rng: Rng) -> None:
    for side, grid in (
        *((4, (4, 4)), (4, (3, 7)), (3, (5, 2)), (2, (1, 1)), (5, (5, 5))),
        *((4, (2, 8)), (4, (16, 1)), (6, (9, 4)), (2, (1, 4))),  # as many patches as the table has, on another grid
    ):
        table = rng.normal(side * side, rng.integer(2, 9))
        found = submission.observe("positions", table=table, grid=list(grid))
        said = f"the positions of a grid of {grid[0]} x {grid[1]}, from one of {side} x {side}"
        expect_equal(found, positions(table, grid), said)


@check(
    kind="invariant",
    title="Only whole patches, and the pretrained base",
    property="An image that does not consist of whole patches must raise ValueError, in `patchify` and in the policy. `build_policy` must give the pretrained base and a head drawn from the seed, under the base's names.",
    instrument="python -c 'from policy import *; print(build_policy(0))'",
)
def test_contract_is_kept(submission: Submission, rng: Rng) -> None:
    for height, width, size in ((60, 64, 16), (64, 72, 16), (5, 7, 4), (10, 10, 4)):
        raised = submission.observe("refusal", height=height, width=width, size=size)
        expect(raised, f"what {height} x {width} pixels in patches of {size} raise").equals("ValueError")
    for height, width, size in ((70, 64, 16), (64, 50, 16), (10, 64, 16), (40, 44, 8)):
        sizes = {"patch_size": size, "image_size": size * (min(height, width) // size) or 64}
        given = {"batch": random_batch(rng, 2), "height": height, "width": width, "sizes": sizes}
        for use, raised in submission.observe("policy_refusals", **given).items():
            said = f"what the {use} of a policy for {height} x {width} pixels in patches of {size} raises"
            expect(raised, said).equals("ValueError")
    seed = rng.integer(0, 1000)
    wanted = {name: value.detach() for name, value in Policy.from_base(seed=seed).named_parameters()}
    found = submission.observe("built", seed=seed)
    expect(listed(wanted.keys() ^ found.keys()), "what the policy lacks or has too many").equals("nothing")
    other = {name for name, value in wanted.items() if not torch.equal(found[name], value)}
    expect(listed(other), "what differs from the base, or from a head drawn from the seed").equals("nothing")


@check(
    kind="invariant",
    title="The image and the instruction still matter, and frames are independent",
    property="Another image and another instruction must each change the predicted actions. The rest of the batch must not.",
    instrument="debugkit.check(policy, batch, select=['DK305', 'DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng)
    expect_frames_to_be_independent(submission, rng)


@check(
    kind="outcome",
    title="The robot grasps the named block",
    property=f"After a short training, at least {SUCCESS_BAR:.0%} of {EPISODES} episodes on new tables must end with a grasp of the named block.",
    instrument="lab run 07",
)
def test_robot_grasps(submission: Submission, seed: int) -> None:
    success = submission.observe("trained_success", seed=seed, episodes=EPISODES)
    expect_success_rate(success, episodes=EPISODES, at_least=SUCCESS_BAR)


@wrong_fix(
    "square_images_only",
    says="Square images are cut correctly now, others are not: the numbers of rows and of columns are exchanged, and only for a square image are they the same.",
)
def recognise_square_only(evidence: Mapping[str, Any]) -> bool:
    return possible_orders(evidence) == {"square_images_only"}


@wrong_fix(
    "columns_first",
    says="Each row is one patch now, but the patches are numbered down the columns. The position table numbers them along the rows, so most patches get the position of another.",
)
def recognise_columns_first(evidence: Mapping[str, Any]) -> bool:
    return possible_orders(evidence) == {"columns_first"}


@wrong_fix(
    "channels_last",
    says="Each row is one patch now, but it holds the channels of each pixel in turn. The pretrained weights are a convolution's: all pixels of the first channel, then all of the second.",
)
def recognise_channels_last(evidence: Mapping[str, Any]) -> bool:
    return possible_orders(evidence) == {"channels_last"}


@wrong_fix(
    "mirrored_at_the_diagonal",
    says="Each row is one patch now, but its pixels are numbered down the columns: every patch is mirrored at its diagonal.",
)
def recognise_mirrored(evidence: Mapping[str, Any]) -> bool:
    return possible_orders(evidence) == {"mirrored_at_the_diagonal"}


@wrong_fix(
    "thumbnails",
    says="Each row is a small version of the whole image, made of every n-th pixel. The first of the two numbers into which an axis is split is the one that counts the patches.",
)
def recognise_thumbnails(evidence: Mapping[str, Any]) -> bool:
    return possible_orders(evidence) == {"thumbnails"}


def possible_orders(evidence: Mapping[str, Any]) -> set[str]:
    """The orders that explain the rows of all images."""
    return set.intersection(*(set(evidence[f"test_rows_are_patches/possible orders: {case}"]) for case in CASES))


def random_policy(config: PolicyConfig, rng: Rng) -> Policy:
    """A healthy policy in evaluation mode, with a vision tower and a projector in which no weight is zero."""
    with private_randomness(rng.seed()):
        policy = Policy(config).eval()
    for value in (*policy.vision.parameters(), *policy.projector.parameters()):
        value.data.add_(rng.normal(*value.shape, std=0.05))
    return policy


def positions(table: Tensor, grid: tuple[int, int]) -> Tensor:
    """The reference's position table (S·S, V) for another grid, (P, V)."""
    side = round(len(table) ** 0.5)
    square = table.T.unflatten(1, (side, side))[None]
    return F.interpolate(square, size=grid, mode="bilinear", align_corners=False)[0].flatten(1).T


@torch.no_grad()
def embedded(policy: Policy, pixels: Tensor) -> Tensor:
    """What a policy's parts make of images (B, 3, H, W) whose patches a strided convolution embeds."""
    parts = policy.vision.embeddings
    grid = parts.patch_embedding(pixels)  # (B, V, rows, columns)
    own = positions(parts.position_embedding.weight, (grid.shape[2], grid.shape[3]))
    seen = policy.vision.encoder(inputs_embeds=grid.flatten(2).mT + own).last_hidden_state
    return policy.projector(policy.vision.post_layernorm(seen))
