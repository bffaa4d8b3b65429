"""Requirements for the port's images and actions. Runs in the grader's process; judges data, and never sees the code.

The reference is in `labs.letterboxed_images`. Sizes of cameras and of the tower are drawn here: a fix for the two
cameras of the lab alone is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_equal, listed, relative_error
from labs.letterboxed_images import OTHER_TASKS, ROUNDING, TASKS, bars, explain, letterboxed, random_image
from labs.policy_comparison import with_louder_head
from labs.strip_cameras import exported, original_base
from labs.vla.dataset import Batch
from labs.vla.language import tokenize

SIZE = 64
LOWEST, HIGHEST = -1.0, 1.0
RANGE_ROUNDING = 1e-5
LOUDER = 30.0
"""Outputs this large exceed the range of the demonstrated actions. Nothing may limit them."""
CAMERAS = ["landscape", "portrait"]
EPISODES = 60
SUCCESS_BAR = 0.85


@check(
    kind="behaviour",
    title="Every pixel is in the tower's range",
    property="Whatever the camera's shape, no pixel value may be below -1, the tower's black, or above 1, its white.",
    instrument="debugkit.check(policy, batch, select=['DK302'])",
)
def test_pixels_are_in_range(submission: Submission, rng: Rng) -> None:
    every = list(prepared_images(submission, rng))
    for image, size, found, said in every:
        if image.shape[0] != image.shape[1]:
            expect(explain(found, image, size), f"formula for {said}")
    for _, size, found, said in every:
        expect(found, f"the pixels for {said},").has_shape(3, size, size)
        expect(found.min(), f"the smallest pixel value for {said},").at_least(LOWEST - RANGE_ROUNDING)
        expect(found.max(), f"the largest pixel value for {said},").at_most(HIGHEST + RANGE_ROUNDING)


@check(
    kind="behaviour",
    title="The padding is black",
    property="What is beside the image in the square must be black, which is -1 for the tower, on both sides of it.",
    instrument="python -c 'from policy import *; print(prepare_image(np.full((28, 64, 3), 255, np.uint8))[0, ::8, 0])'",
)
def test_padding_is_black(submission: Submission, rng: Rng) -> None:
    for image, size, found, said in prepared_images(submission, rng):
        beside = bars(image, size)
        expect(found, f"the pixels for {said},").has_shape(3, size, size)
        if beside.any():
            expect(found[:, beside].min(), f"the smallest value of the padding for {said},").close_to(LOWEST)
            expect(found[:, beside].max(), f"the largest value of the padding for {said},").close_to(LOWEST)


@check(
    kind="behaviour",
    title="The image is resized and not distorted",
    property="Each image must be what the original makes of it: resized bilinearly so that its longer side has the tower's size, in the middle of the square, and scaled from black, -1, to white, 1.",
    instrument="python -c 'from policy import *; print(prepare_image(np.full((28, 64, 3), 255, np.uint8))[0, ::8, ::8])'",
)
def test_image_equals_the_reference(submission: Submission, rng: Rng) -> None:
    for image, size, found, said in prepared_images(submission, rng):
        wanted = letterboxed(image, size).float()
        inside = ~bars(image, size)
        expect(found, f"the pixels for {said},").has_shape(3, size, size)
        expect_close(found[:, inside], wanted[:, inside], f"the image's pixels for {said},")
        expect_close(found, wanted, f"all pixels for {said},")


@check(
    kind="invariant",
    title="A lost frame is a black image",
    property="Without an image, the policy must see black, and the other observations of the batch must not change.",
    instrument="python -c 'from policy import *; print(prepare_image(None).unique())'",
)
def test_lost_frame_is_black(submission: Submission, rng: Rng) -> None:
    for size in (None, rng.integer(20, 60)):
        found = submission.observe("prepared", image=None, size=size)["pixels"]
        side = size or SIZE
        expect(found, "the pixels of a lost frame").has_shape(3, side, side)
        expect(found.min(), "the smallest pixel value of a lost frame").close_to(LOWEST)
        expect(found.max(), "the largest pixel value of a lost frame").close_to(LOWEST)


@check(
    kind="invariant",
    title="Observations are prepared one by one",
    property="In a batch of robots with different cameras, each row must be that robot's own observation: image, state and instruction. The robot's image must not be modified.",
    instrument='python -c \'from policy import *; seen = [{"image": np.full((h, 64, 3), 9 * h, np.uint8), "state": np.full(3, h, np.float32), "instruction": "go to red"} for h in (20, 28)]; print(*({name: value[-1].float().mean() for name, value in prepare_batch(some).items()} for some in (seen, seen[1:])), sep="\\n")\'',
)
def test_rows_are_independent(submission: Submission, rng: Rng) -> None:
    seen = random_observations(rng)
    batch = submission.observe("batch", **seen)
    wanted = reference_batch(seen)
    expect(listed(wanted.keys() ^ batch.keys()), "what a batch lacks or has too many").equals("nothing")
    for row, image in enumerate(seen["images"]):
        said = "a lost frame" if image is None else told(image, SIZE)
        pixels = batch["pixel_values"]
        expect(pixels, "the pixels of the batch").has_shape(len(seen["images"]), 3, SIZE, SIZE)
        expect_close(pixels[row], wanted["pixel_values"][row], f"the pixels of row {row}, {said},")
    for name in ("input_ids", "attention_mask", "state"):
        expect(batch[name], f"the batch's `{name}`").equals(wanted[name])
    image = random_image(rng, 50, 90)
    after = submission.observe("prepared", image=image)["image"]
    expect(after, "the robot's image after it was prepared").equals(image)


@check(
    kind="invariant",
    title="The port has the original's weights, and acts as it does",
    property="Every tensor must be the original's, convolutions in PyTorch's layout, and the policy in evaluation mode. For the same observations its actions must be the original's, and not limited.",
    instrument="python -c 'from policy import *; print(to_pytorch(torch.zeros(16, 8, 3, 64)).shape)'",
)
def test_port_acts_as_the_original(submission: Submission, rng: Rng) -> None:
    original = original_base(rng.integer(0, 1000))
    weights, wanted = exported(original), original.state_dict()
    seen = submission.observe("loaded", weights=weights)
    found = seen["weights"]
    expect(listed(wanted.keys() ^ found.keys()), "what the port lacks or has too many").equals("nothing")
    other = {name for name, value in wanted.items() if not torch.equal(found[name], value)}
    expect(listed(other), "what differs from the original").equals("nothing")
    expect(seen["training"], "whether the port is in training mode").is_false()
    observations, loud = random_observations(rng), with_louder_head(original, LOUDER).eval()
    actions = submission.observe("action", weights=exported(loud), **observations)
    expect_equal(actions, loud.predict(reference_batch(observations)), "the actions")


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the action.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    weights = exported(original_base(rng.integer(0, 1000)))
    seen = random_observations(rng, lost=False)
    before = submission.observe("action", weights=weights, **seen)
    expect(before, "the actions").has_shape(len(TASKS), 4, 3)
    for name, other in (("images", seen["images"][::-1]), ("instruction", OTHER_TASKS)):
        moved = submission.observe("action", weights=weights, **{**seen, name: other})
        expect(moved, f"the actions with another `{name}`").differs_from(before)


@check(
    kind="outcome",
    title="The port grasps on every camera",
    property=f"With the weights of a newly trained original, at least {SUCCESS_BAR:.0%} of the episodes with a landscape and a portrait camera must end with a grasp of the named block.",
    instrument="lab run 31",
)
def test_robot_grasps(submission: Submission, seed: int) -> None:
    success = submission.observe("episodes", seed=seed, cameras=CAMERAS, count=EPISODES)
    expect(sorted(success), "the cameras").equals(CAMERAS)
    together = torch.cat([success[camera] for camera in CAMERAS])
    expect(together.double().mean(), "the success rate of both cameras together").at_least(SUCCESS_BAR)


Prepared = tuple[Tensor, int, Tensor, str]
"""An image, the tower's size, what the image was prepared to, and the case in words."""


def prepared_images(submission: Submission, rng: Rng) -> Iterator[Prepared]:
    """Images of all shapes and sizes: the lab's cameras, smaller and larger ones, and odd paddings."""
    long, short = rng.integer(70, 150), rng.integer(20, 60)
    cases = [(56, 128, None), (128, 56, None), (short, long, None), (long, short, None), (128, 128, None)]
    cases += [(64, 37, None), (9, 20, None), (short, long, 33), (long, short, 48), (48, 48, 48)]
    for height, width, size in cases:
        image = random_image(rng, height, width)
        found = submission.observe("prepared", image=image, size=size)["pixels"]
        yield image, size or SIZE, found, told(image, size or SIZE)


def random_observations(rng: Rng, *, lost: bool = True) -> dict[str, Any]:
    """Four observations from different cameras; with `lost`, one of them has no image."""
    images: list[Tensor | None] = [random_image(rng, *size) for size in ((56, 128), (60, 60), (90, 41), (128, 56))]
    if lost:
        images[1] = None
    return {"images": images, "state": rng.uniform(4, 3), "instruction": TASKS}


def reference_batch(seen: Mapping[str, Any]) -> Batch:
    """What observations are prepared to."""
    black = torch.full((3, SIZE, SIZE), LOWEST)
    pixels = [black if image is None else letterboxed(image, SIZE).float() for image in seen["images"]]
    input_ids, attention_mask = tokenize(seen["instruction"])
    return {
        "pixel_values": torch.stack(pixels),
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "state": seen["state"],
    }


def told(image: Tensor, size: int) -> str:
    """An image in a message."""
    height, width, _ = image.shape
    if size == SIZE:
        return f"an image of {height} × {width} pixels"
    return f"an image of {height} × {width} pixels and a tower of {size} × {size}"


def expect_close(found: Tensor, wanted: Tensor, what: str) -> None:
    """Equal up to rounding, relative to the length of `wanted`."""
    expect(found, what).has_shape(*wanted.shape)
    expect(relative_error(found, wanted), f"the relative error of {what}").at_most(ROUNDING)


def formulas(evidence: Mapping[str, Any]) -> set[str]:
    """What explains the prepared images that are not square."""
    prefix = "test_pixels_are_in_range/formula for "
    return {str(value) for name, value in evidence.items() if name.startswith(prefix)}


@wrong_fix(
    "grey_bars",
    says="Every pixel is in the range now, but the padding is 0. For a tower that reads [-1, 1], 0 is a medium grey: it was trained with black, -1.",
)
def recognise_grey_bars(evidence: Mapping[str, Any]) -> bool:
    return formulas(evidence) == {"grey_bars"}


@wrong_fix(
    "stretched",
    says="The padding is gone, because the image is stretched to a square. The tower has never seen a distorted table: a block is not a square any more, and is in another place.",
)
def recognise_stretched(evidence: Mapping[str, Any]) -> bool:
    return formulas(evidence) == {"stretched"}


@wrong_fix(
    "standardised",
    says="Each image is scaled by its own mean and standard deviation. The same grey becomes another value in each image, and none is what the tower was trained with.",
)
def recognise_standardised(evidence: Mapping[str, Any]) -> bool:
    return formulas(evidence) == {"standardised"}


@wrong_fix(
    "unscaled",
    says="Every pixel is in the range now, and the padding is -1. But the image itself uses only the upper half of the range, from 0 to 1: its black is the tower's medium grey.",
)
def recognise_unscaled(evidence: Mapping[str, Any]) -> bool:
    return formulas(evidence) == {"unscaled"}


@wrong_fix(
    "rescaled_to_the_range",
    says="The smallest and the largest value of each image are mapped to -1 and 1. The smallest one is the padding's, which was too low: the image is left with about half of its contrast, and black in it is grey.",
)
def recognise_rescaled(evidence: Mapping[str, Any]) -> bool:
    return "rescaled" in formulas(evidence) <= {"rescaled", "unscaled"}


@wrong_fix(
    "black_is_zero",
    says="The padding is correct now. But the same constant is the value of a lost frame, and that is not scaled any more: the policy sees a grey image instead of a black one.",
)
def recognise_black_is_zero(evidence: Mapping[str, Any]) -> bool:
    lost = evidence.get("test_lost_frame_is_black/the smallest pixel value of a lost frame")
    return formulas(evidence) == {"letterboxed"} and lost is not None and abs(float(lost)) < 1e-3
