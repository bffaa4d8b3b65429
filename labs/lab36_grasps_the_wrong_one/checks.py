"""Requirements for a policy that learns from files. Runs in the grader's process; judges data, and never sees the code.

Tables are drawn here, and given to the program as the drivers of its two cameras deliver them. What counts is the colour
of each half in what the policy learns from, in what it receives on the robot, and in a file that a viewer opens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from labs.camera_views import (
    EXCHANGED,
    FLIPS,
    GREY,
    SAME,
    SIDES,
    as_frames,
    change,
    delivered,
    denormalized,
    each_half,
    facts,
    halves,
    how,
    in_a_viewer,
    is_all,
    normalized,
    of_one_camera,
    one_block,
    png_files,
    random_moments,
    random_tables,
    shown,
)
from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_equal, expect_success_rate, relative_error
from labs.policy_comparison import with_louder_head
from labs.prepared_observations import OTHER_TASKS, TASKS
from labs.vla.language import COLOURS, tokenize
from labs.vla.policy import Policy
from labs.vla.tabletop import COLOUR_RGB
from labs.vla.training import fit

EPISODES = 50
SUCCESS_BAR = 0.85
TRAINING_STEPS, LEARNING_RATE = 160, 2e-3
FRAMES = 70
"""More than a batch, and fewer than two."""
ROUNDING = 1e-5
LOUDER = 30.0
"""Outputs this large exceed the range of the demonstrated actions. Nothing may limit them."""
PATHS = {"training": "what the policy learns from", "robot": "what it receives on the robot"}
SIZES = ((3, 64, 64), (1, 64, 64), (4, 48, 40))


@check(
    kind="behaviour",
    title="A red block is red in both paths",
    property="A block of any colour must have its own colour in what the policy learns from and in what it receives on the robot, in the half of each camera.",
    instrument='python -c \'from policy import *; from labs.two_cameras import *; red = as_delivered(np.full((1, 64, 64, 3), (220, 40, 40), np.uint8)); seen = grab(red); print(seen["left"][0, 0, 0], load(record(seen))["left"][0, 0, 0])\'',
)
def test_a_red_block_is_red(submission: Submission, rng: Rng) -> None:
    for side in SIDES:
        for index, colour in enumerate(COLOURS):
            table, (row, column) = one_block(rng, side, index)
            seen = submission.observe("both_paths", delivered=delivered(table), told=random_moments(rng, 1))
            wanted = str(tuple(COLOUR_RGB[index].tolist()))
            for path, where in PATHS.items():
                pixels = seen[path]["pixel_values"]
                said = f"{colour} block that the {side} camera sees"
                expect(pixels, f"the pixel values of {where}, for a {said},").has_shape(1, 3, 64, 64)
                found = str(tuple(denormalized(pixels)[0, row, column].round().int().tolist()))
                expect(found, f"red, green and blue of a {said}, in {where},").equals(wanted)


@check(
    kind="behaviour",
    title="Every pixel is as the camera saw it",
    property="What the policy learns from, what it receives on the robot, and the files in a viewer must be what the cameras saw: RGB, each pixel in its place, for any number and size of images.",
    instrument="debugkit.check(policy, batch, declare=debugkit.Declare(training_path=training, serving_path=serving, raw_frame=frame), select=['DK407'])",
)
def test_every_pixel_is_as_seen(submission: Submission, rng: Rng) -> None:
    results = []
    for size in SIZES:
        table, told = random_tables(rng, *size), random_moments(rng, size[0])
        found = submission.observe("both_paths", delivered=delivered(table), told=told)
        for side, view in halves(table).items():
            for path, where in PATHS.items():
                expect(how(each_half(found[path])[side], view), half_of(side, where, size))
            expect(how(shown(found["files"][side]), view), half_of(side, "what a viewer shows of the files", size))
        results.append((size, table, found))
    for size, table, found in results:
        for side, view in halves(table).items():
            for path, where in PATHS.items():
                expect(how(each_half(found[path])[side], view), half_of(side, where, size)).equals(SAME)
        for path, where in PATHS.items():
            pixels, wanted = found[path]["pixel_values"], normalized(table)
            expect(pixels, f"the pixel values of {where}").has_shape(*wanted.shape)
            expect(relative_error(pixels, wanted), f"the relative error of the pixel values of {where}").at_most(
                ROUNDING
            )


@check(
    kind="behaviour",
    title="A viewer shows a recording in its true colours",
    property="`record` must write one PNG file for each camera and moment, which any viewer shows as the camera saw it, without loss.",
    instrument='python -c \'from policy import *; from labs.two_cameras import *; from pathlib import Path; red = as_delivered(np.full((1, 64, 64, 3), (220, 40, 40), np.uint8)); Path("left.png").write_bytes(record(grab(red))["left"][0])\'',
)
def test_files_are_in_true_colours(submission: Submission, rng: Rng) -> None:
    for size in SIZES:
        table = random_tables(rng, *size)
        files = submission.observe("both_paths", delivered=delivered(table), told=random_moments(rng, size[0]))["files"]
        expect(sorted(files), "the cameras of a recording").equals(sorted(SIDES))
        for side, view in halves(table).items():
            expect(len(files[side]), f"the number of files of the {side} camera").equals(len(view))
            for moment, (file, image) in enumerate(zip(files[side], view, strict=True)):
                kind, seen = in_a_viewer(file)
                said = f"the {side} camera's file of moment {moment}"
                expect(kind, f"the format of {said}").equals("PNG")
                expect(how(seen[None], image[None]), f"{said} in a viewer").equals(SAME)
                expect(torch.equal(seen, image), f"whether {said} shows every pixel exactly").is_true()


@check(
    kind="behaviour",
    title="Files from another program are read in their colours",
    property="`load` must give the RGB images of PNG files, from any program, and `preview` the images of all cameras at one moment next to each other, also RGB. The left camera's half must be on the left for images of any width, whichever camera a mapping names first.",
    instrument="python -c 'from policy import *; from labs.two_cameras import *; red = as_delivered(np.full((1, 64, 64, 3), (220, 40, 40), np.uint8)); files = record(grab(red)); print(load(files)[\"left\"][0, 0, 0], preview(files, 0)[0, 0])'",
)
def test_files_of_another_program(submission: Submission, rng: Rng) -> None:
    for size in SIZES:
        table = random_tables(rng, *size)
        seen = submission.observe("from_files", files=png_files(table))
        for side, view in halves(table).items():
            said = f"the {side} camera's images, loaded from {size[0]} files of another program,"
            expect(how(seen["loaded"][side], view), said).equals(SAME)
            expect(str(seen["loaded"][side].dtype), f"the dtype of {said}").equals("torch.uint8")
        for moment, image in enumerate(seen["previews"]):
            for side, view in halves(table[moment]).items():
                preview = halves(image).get(side)
                said = f"the {side} half of the preview of moment {moment}"
                expect(how(preview[None], view[None]), said).equals(SAME)
    expect_each_camera_as_it_is(submission, rng)


@check(
    kind="invariant",
    title="Only images go through the files",
    property="State, instruction, actions and padding must be unchanged in what the policy learns from, and state and instruction on the robot. `grab` must give RGB images, and neither `grab` nor `record` nor `observe` may modify what it receives.",
    instrument="python -c 'from policy import *; from labs.two_cameras import *; given = as_delivered(np.full((1, 64, 64, 3), (220, 40, 40), np.uint8)); before = {name: value.copy() for name, value in given.items()}; record(grab(given)); print({name: (given[name] == value).all() for name, value in before.items()})'",
)
def test_only_images_go_through_the_files(submission: Submission, rng: Rng) -> None:
    for size in SIZES:
        table, told = random_tables(rng, *size), random_moments(rng, size[0])
        given = delivered(table)
        found = submission.observe("both_paths", delivered=given, told=told)
        for name, wanted in told.items():
            expect(found["frames"][name], f"the `{name}` that the policy learns from").equals(wanted)
        ids, mask = tokenize(told["instruction"], 8)
        for name, wanted in (("state", told["state"]), ("input_ids", ids), ("attention_mask", mask)):
            expect(found["robot"][name], f"the `{name}` on the robot").equals(wanted)
        for side, view in halves(table).items():
            for afterwards, who in zip(found["delivered"], ("`grab` and `record`", "`observe`"), strict=True):
                expect(afterwards[side], f"what the {side} camera's driver delivered, after {who},").equals(given[side])
            expect(how(found["grabbed"][side], view), f"the {side} camera's images behind `grab`").equals(SAME)
            expect(found["after_recording"][side], f"the {side} camera's images after `record`").equals(
                found["grabbed"][side]
            )
        expect(str(found["frames"]["image"].dtype), "the dtype of the images to learn from").equals("torch.uint8")


@check(
    kind="invariant",
    title="The robot does what the policy predicts",
    property="The actions must be the policy's prediction for its input, unchanged and not limited. Another image of either camera and another instruction must each change the actions.",
    instrument="python -c 'from policy import *; from labs.two_cameras import *; seen = as_delivered(np.full((1, 64, 64, 3), 90, np.uint8)), np.zeros((1, 3), np.float32), [\"go to red\"]; p = Policy.from_base().eval(); print(act(p, *seen), p.predict(observe(*seen)))'",
)
def test_robot_acts_as_the_policy(submission: Submission, rng: Rng) -> None:
    seed = rng.seed()
    views, told = delivered(random_tables(rng, 3, 64, 64)), random_moments(rng, 3)
    told["instruction"] = TASKS
    asked = {"delivered": views, "state": told["state"], "instruction": told["instruction"], "seed": seed}
    asked["louder"] = LOUDER
    seen = submission.observe("action", **asked)
    wanted = with_louder_head(Policy.from_base(seed=seed), LOUDER).eval().predict(seen["robot"])
    expect(seen["action"], "the actions for what the policy received").close_to(wanted, rtol=1e-4, atol=1e-6)
    for side in SIDES:
        other = {**views, side: views[side].flip(0)}
        moved = submission.observe("action", **{**asked, "delivered": other})["action"]
        expect(moved, f"the action under another image of the {side} camera").differs_from(seen["action"])
    moved = submission.observe("action", **{**asked, "instruction": OTHER_TASKS})
    expect(moved["action"], "the action under another instruction").differs_from(seen["action"])


@check(
    kind="invariant",
    title="Fine-tuning is as before",
    property="`fine_tune` must train the pretrained base on all frames of the recording, drawn from the seed, report every step, and return the policy in evaluation mode.",
    instrument="lab run 36",
)
def test_fine_tuning_is_as_before(submission: Submission, rng: Rng) -> None:
    seed, steps = rng.integer(0, 1000), 3
    files, told = png_files(random_tables(rng, FRAMES, 64, 64)), random_moments(rng, FRAMES)
    seen = submission.observe("fine_tuned", files=files, told=told, seed=seed, steps=steps)
    policy = Policy.from_base(seed=seed)
    losses = fit(policy, as_frames(seen["frames"]), steps=steps, seed=seed, learning_rate=LEARNING_RATE)
    expect([int(step) for step, _ in seen["reported"]], "the steps that `on_step` reported").equals(list(range(steps)))
    expect_equal(torch.tensor([loss for _, loss in seen["reported"]]), torch.tensor(losses), "the losses")
    start, trained = Policy.from_base(seed=seed).state_dict(), policy.state_dict()
    expect(sorted(seen["weights"]), "the names of the weights").equals(sorted(trained))
    expect_equal(change(seen["weights"], start), change(trained, start), "the change of the weights")
    expect(seen["training"], "whether the policy that is returned is in training mode").is_false()


@check(
    kind="outcome",
    title="The robot grasps the named block",
    property=f"After a fine-tuning of {TRAINING_STEPS} steps, at least {SUCCESS_BAR:.0%} of {EPISODES} episodes on new tables must end with a grasp of the named block.",
    instrument="lab run 36",
)
def test_robot_grasps_the_named_block(submission: Submission, seed: int) -> None:
    result = submission.observe("trained_rollout", seed=seed, steps=TRAINING_STEPS, episodes=EPISODES)
    expect_success_rate(result["success"], episodes=EPISODES, at_least=SUCCESS_BAR)


def expect_each_camera_as_it_is(submission: Submission, rng: Rng) -> None:
    """Cameras whose images differ in width, in mappings that name the right camera first: the left half stays left."""
    for left, right in ((24, 40), (48, 16)):
        views = {"left": random_tables(rng, 2, 48, left), "right": random_tables(rng, 2, 48, right)}
        table, told = torch.cat([views["left"], views["right"]], dim=2), random_moments(rng, 2)
        files = {side: png_files(torch.cat([view, view], dim=2))[side] for side, view in views.items()}
        drivers = {side: delivered(torch.cat([view, view], dim=2))[side] for side, view in views.items()}
        seen = submission.observe("exchanged_names", delivered=drivers, files=files, told=told)
        which = f"files that name the right camera first, with images of {left} and {right} columns,"
        for side, view in views.items():
            expect(how(seen["loaded"][side], view), f"the {side} camera's images, loaded from {which}").equals(SAME)
        for name, said in (
            ("joined", f"the whole table, joined from images of {which}"),
            ("image", f"the whole table that the policy learns from, recorded in {which}"),
            ("preview", f"the preview of {which}"),
        ):
            found = seen[name][None] if name == "preview" else seen[name]
            expect(how(found, table[: len(found)]), said).equals(SAME)
        pixels = seen["robot"]["pixel_values"]
        what = f"what the policy receives on the robot, where the right camera comes first, with images of {left} and {right} columns,"
        expect(how(denormalized(pixels), table), what).equals(SAME)


def half_of(side: str, what: str, size: tuple[int, int, int]) -> str:
    """The half of a camera in a message."""
    count, height, width = size
    return f"the {side} camera's half of {what}, for {count} images of {height} × {width} pixels,"


TRAINING, ROBOT, FILES = PATHS["training"], PATHS["robot"], "what a viewer shows of the files"


@wrong_fix(
    "exchanged_on_the_robot",
    says="Both paths agree now, because red and blue are exchanged on the robot as well. The base was pretrained on RGB: it has to learn the colours again, and the next program that reads these recordings correctly has the fault.",
)
def recognise_exchanged_on_the_robot(evidence: Mapping[str, Any]) -> bool:
    return is_all(evidence, EXCHANGED, TRAINING, ROBOT) and is_all(evidence, SAME, FILES)


@wrong_fix(
    "one_camera_on_the_robot",
    says="This exchanges red and blue on the robot for one camera only. What the policy learns from is exchanged for both, and on the robot the same block has two colours, depending on the half it is in.",
)
def recognise_one_camera_on_the_robot(evidence: Mapping[str, Any]) -> bool:
    return of_one_camera(evidence, ROBOT) and is_all(evidence, EXCHANGED, TRAINING) and is_all(evidence, SAME, FILES)


@wrong_fix(
    "one_camera_in_training",
    says="This repairs what the policy learns from for one camera. Measure the other one as well: its half still has red and blue exchanged.",
)
def recognise_one_camera_in_training(evidence: Mapping[str, Any]) -> bool:
    return of_one_camera(evidence, TRAINING) and is_all(evidence, SAME, ROBOT, FILES)


@wrong_fix(
    "grey",
    says="Without colours, both paths agree, and no instruction can be followed: each of them names a colour.",
)
def recognise_grey(evidence: Mapping[str, Any]) -> bool:
    return is_all(evidence, GREY, TRAINING, ROBOT)


@wrong_fix(
    "files_exchanged",
    says="New recordings are read as they were seen, because red and blue are now exchanged twice: in the file and behind it. The files that exist are read as before, and a viewer shows the new ones in false colours.",
)
def recognise_files_exchanged(evidence: Mapping[str, Any]) -> bool:
    return is_all(evidence, SAME, TRAINING, ROBOT) and is_all(evidence, EXCHANGED, FILES)


@wrong_fix(
    "another_axis",
    says="This reverses an axis of the images that is not the channels'. The images are (N, H, W, 3), so the channels are the last axis; red and blue are exchanged as before, and the table has moved.",
)
def recognise_another_axis(evidence: Mapping[str, Any]) -> bool:
    words = set().union(*facts(evidence, TRAINING).values()) - {EXCHANGED}
    return bool(words) and words <= {f"{EXCHANGED}, {flip}" for flip in FLIPS} and is_all(evidence, SAME, ROBOT, FILES)


@wrong_fix(
    "exchanged_for_both_paths",
    says="This converts behind the place where the two paths meet. What the policy learns from is RGB now, and on the robot, where it was RGB, red and blue are exchanged.",
)
def recognise_both_paths(evidence: Mapping[str, Any]) -> bool:
    return is_all(evidence, SAME, TRAINING, FILES) and is_all(evidence, EXCHANGED, ROBOT)
