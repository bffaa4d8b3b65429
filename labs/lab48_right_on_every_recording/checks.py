"""Requirements for a policy's two paths. Runs in the grader's process; judges data, and never sees the code.

What counts is what the policy receives: the inputs are recorded where a policy encodes them. Frames and checkpoints are
made here, with several settings, sizes of the camera's image and numbers of robots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_equal, expect_success_rate, listed, relative_error
from labs.policy_comparison import with_louder_head
from labs.prepared_observations import (
    INPUTS,
    OTHER_TASKS,
    ROUNDING,
    STOCK,
    TASKS,
    Settings,
    facts,
    prepared,
    random_frames,
    random_settings,
    reference_training,
    rows_of,
    same,
    told,
    words,
)
from labs.vla.policy import OBSERVATION_KEYS, Policy

EPISODES = 50
SUCCESS_BAR = 0.85
FRAMES = 80
LOUDER = 30.0
"""Outputs this large exceed the range of the demonstrated actions. Nothing may limit them."""
"""More than a batch, and fewer than two."""
NONE, NAMED, UNNAMED = "no error", "an error that names the setting", "an error that does not name the setting"


@check(
    kind="behaviour",
    title="The robot's policy receives what it was trained with",
    property="For the same raw frames, training and a robot that loaded the checkpoint must give the policy identical pixel values, token ids, masks and states, with any settings.",
    instrument="debugkit.check(policy, batch, declare=debugkit.Declare(training_path=training, serving_path=robot.observe, raw_frame=frame), select=['DK407'])",
)
def test_both_paths_agree(submission: Submission, rng: Rng) -> None:
    seen = []
    for size, side, settings in ((3, 80, None), (1, 80, random_settings(rng)), (4, 100, random_settings(rng))):
        raw, said = random_frames(rng, size, side), of_settings(settings)
        found = submission.observe("both_paths", raw=raw, settings=settings, seed=rng.seed())
        seen.append((said, found))
        expect(facts(raw, settings, found), f"what agrees {said}")
    for said, found in seen:
        for path, who in (("robot", "what the robot's policy receives"), ("observed", "what `Robot.observe` returns")):
            expect_inputs(found[path], found["training"], f"of {who}, {said}, compared with the training batch")


@check(
    kind="behaviour",
    title="Observations are prepared as the settings say",
    property="Crop, resizing, pixel statistics, prompt and length must be as described in the docstring, in the training batch and on the robot.",
    instrument="python -c 'from policy import *; from labs.wide_camera import *; print(training_batch(wide_demonstrations(1, 48), np.arange(1), TRAINED_WITH))'",
)
def test_preparation_is_as_described(submission: Submission, rng: Rng) -> None:
    uncropped: Settings = {"crop": 1.0, "prompt": "{task}", "length": 16}
    for size, side, settings in ((2, 80, None), (1, 64, uncropped), (3, 90, random_settings(rng)), (2, 71, {})):
        raw, said = random_frames(rng, size, side), f"{of_settings(settings)}, of images with {side} pixels a side,"
        found = submission.observe("both_paths", raw=raw, settings=settings, seed=rng.seed())
        wanted = prepared(raw, STOCK if settings is None else settings)
        for path, where in (("training", "the training batch"), ("robot", "the robot's input")):
            expect_inputs(found[path], wanted, f"of {where}, {said}")
        for name in ("action", "action_is_pad"):
            expect(found["training"][name], f"the `{name}` of the training batch").equals(raw[name])


@check(
    kind="behaviour",
    title="The settings come from the checkpoint",
    property="A robot must prepare observations as the file of its policy's checkpoint says, also where that was saved over another one, and where another one is saved over it later. A setting that is missing there has its default, and one that a processor does not have raises an error that names it.",
    instrument='python -c \'from policy import *; save_checkpoint(Path("here"), Policy.from_base(), TRAINED_WITH, {}); print(load_processor(Path("here")))\'',
)
def test_settings_come_from_the_file(submission: Submission, rng: Rng) -> None:
    full = random_settings(rng)
    no_words = {**full, "prompt": ""}
    files: list[Settings] = [full, *({name: full[name]} for name in full), no_words, {}]
    raw = random_frames(rng, 2, 80)
    found = []
    for settings in files:
        about = {"processor": settings, "training": {"crop": 0.3, "length": 3, "seed": 1, "steps": 150}}
        found.append(submission.observe("from_file", raw=raw, about=about, seed=rng.seed()))
    for settings, seen in zip(files, found, strict=True):
        said = f"from a checkpoint with {told(settings)}"
        expect(brief(seen["error"]), f"the error from loading {said.removeprefix('from ')}").equals("none")
        for who, path in (("the robot's input", "robot"), ("what the processor of `load_processor` gives", "loaded")):
            expect_inputs(seen[path], prepared(raw, settings), f"of {who}, {said}")
    files = [full, STOCK, no_words]
    found = submission.observe("in_one_folder", raw=raw, files=files, seed=0)
    for number, settings, seen in zip(("first", "second", "third"), files, found, strict=True):
        said = f"from the {number} checkpoint in one folder, with {told(settings)}"
        for who, path in (("the robot's input", "robot"), ("what the processor of `load_processor` gives", "loaded")):
            expect_inputs(seen[path], prepared(raw, settings), f"of {who}, {said}")
    seed = rng.seed()
    seen = submission.observe("saved_over", raw=raw, settings=full, other=STOCK, seed=seed)
    said = f"with {told(full)}, after another checkpoint was saved over the robot's"
    for who, path in (("the robot's input", "robot"), ("what `Robot.observe` returns", "observed")):
        expect_inputs(seen[path], prepared(raw, full), f"of {who}, {said}")
    wanted = Policy.from_base(seed=seed).eval().predict({name: seen["robot"][name] for name in OBSERVATION_KEYS})
    expect_equal(seen["action"], wanted, "the actions after another checkpoint was saved over the robot's")
    for name, value in (("flip", True), ("crop_size", 64), (f"made_up_{rng.integer(0, 1000)}", None)):
        about = {"processor": {**full, name: value}, "training": {}}
        error = submission.observe("from_file", raw=raw, about=about, seed=0)["error"]
        outcome = NONE if error is None else NAMED if name in error else UNNAMED
        expect(outcome, f"the result of loading a checkpoint with the setting `{name}`").equals(NAMED)


@check(
    kind="invariant",
    title="A checkpoint holds the weights and the settings",
    property="`save_checkpoint` must write the policy's weights, the processor's settings below `processor`, and how it was trained below `training`; into an older checkpoint's folder, too.",
    instrument='python -c \'from policy import *; save_checkpoint(Path("here"), Policy.from_base(), TRAINED_WITH, {}); print(Path("here", ABOUT).read_text())\'',
)
def test_checkpoint_is_complete(submission: Submission, rng: Rng) -> None:
    settings, training, seed = random_settings(rng), {"seed": rng.integer(0, 100), "by": "hand"}, rng.seed()
    seen = submission.observe("saved", settings=settings, training=training, seed=seed)
    expect(seen["about"].get("processor"), "the settings of the processor in the checkpoint").equals(settings)
    expect(seen["about"].get("training"), "how the policy was trained, in the checkpoint,").equals(training)
    expect_weights(seen["weights"], Policy.from_base(seed=seed), "the checkpoint")


@check(
    kind="invariant",
    title="The robot does what the policy predicts",
    property="For any number of robots, the actions must be the prediction of the checkpoint's weights for the prepared observations, unchanged.",
    instrument='python -c \'from policy import *; from labs.wide_camera import *; p = Policy.from_base().eval(); save_checkpoint(Path("here"), p, TRAINED_WITH, {}); robot = Robot(Path("here")); seen = observations_of(wide_demonstrations(2, 48)); print(robot.act(seen)[:, 0], p.predict(robot.observe(seen))[:, 0])\'',
)
def test_robot_acts_as_the_policy(submission: Submission, rng: Rng) -> None:
    for size, settings in ((1, None), (rng.integer(3, 6), random_settings(rng))):
        raw, seed = random_frames(rng, size, 80), rng.seed()
        seen = submission.observe("both_paths", raw=raw, settings=settings, seed=seed, louder=LOUDER)
        received = {name: seen["robot"][name] for name in OBSERVATION_KEYS}
        wanted = with_louder_head(Policy.from_base(seed=seed), LOUDER).eval().predict(received)
        expect_equal(seen["action"], wanted, f"the actions of a batch of {size} for what the policy received")


@check(
    kind="invariant",
    title="Fine-tuning is as before",
    property="`fine_tune` must train the pretrained base on frames prepared with its processor, each frame at most once in a step and drawn from the seed, save that policy and its settings, and return it in evaluation mode.",
    instrument="lab run 48",
)
def test_fine_tuning_is_as_before(submission: Submission, rng: Rng) -> None:
    for settings, steps in ((None, 2), (random_settings(rng), 3)):
        raw, seed, used = random_frames(rng, FRAMES, 80), rng.integer(0, 1000), settings or STOCK
        seen = submission.observe("fine_tuned", raw=raw, seed=seed, steps=steps, settings=settings)
        expect(len(seen["seen"]), f"the number of batches in {steps} steps").equals(steps)
        rows = [rows_of(batch["state"], raw["state"]) for batch in seen["seen"]]
        expect([len(set(one)) for one in rows], "the number of different frames in each step").equals([64] * steps)
        expect(len({tuple(one) for one in rows}), "the number of steps with different frames").equals(steps)
        again = submission.observe("fine_tuned", raw=raw, seed=seed, steps=1, settings=settings)
        first = rows_of(again["seen"][0]["state"], raw["state"])
        expect(first, "the frames of the first step in a second run with the same seed").equals(rows[0])
        for step, (batch, chosen) in enumerate(zip(seen["seen"], rows, strict=True)):
            frames = {name: raw[name][chosen] for name in ("image", "state")}
            wanted = prepared({**frames, "instruction": [raw["instruction"][row] for row in chosen]}, used)
            expect_inputs(batch, wanted, f"of step {step}, {of_settings(settings)}")
        policy, losses = reference_training(
            seed, seen["seen"], [(raw["action"][r], raw["action_is_pad"][r]) for r in rows]
        )
        expect([step for step, _ in seen["reported"]], "the steps that `on_step` reported").equals(list(range(steps)))
        expect_equal(torch.tensor([loss for _, loss in seen["reported"]]), torch.tensor(losses), "the losses")
        expect_moved_alike(seen["weights"], policy, Policy.from_base(seed=seed))
        expect_weights(seen["returned"], seen["weights"], "the policy that is returned")
        expect(seen["training"], "whether the policy that is returned is in training mode").is_false()
        expect(seen["about"]["processor"], "the settings in the checkpoint").equals(used)
        expect(seen["about"]["training"], "how it was trained, in the checkpoint,").equals(
            {"seed": seed, "steps": steps}
        )


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the robot's actions.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    raw, seed = random_frames(rng, 3, 80), rng.seed()
    raw["instruction"] = TASKS
    other = {"image": raw["image"].flip(0), "instruction": OTHER_TASKS}
    about = {"processor": STOCK, "training": {}}
    before = submission.observe("from_file", raw=raw, about=about, seed=seed)["action"]
    expect(before, "the actions").has_shape(*raw["action"].shape)
    for name, value in other.items():
        moved = submission.observe("from_file", raw={**raw, name: value}, about=about, seed=seed)["action"]
        expect(moved, f"the actions under another {name}").differs_from(before)


@check(
    kind="outcome",
    title="The robot reaches the block",
    property=f"After a short fine-tuning, at least {SUCCESS_BAR:.0%} of {EPISODES} episodes on new tables must end with a grasp of the named block.",
    instrument="lab run 48",
)
def test_robot_grasps(submission: Submission, seed: int) -> None:
    result = submission.observe("trained_rollout", seed=seed, episodes=EPISODES)
    expect_success_rate(result["success"], episodes=EPISODES, at_least=SUCCESS_BAR)


def expect_inputs(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], said: str) -> None:
    """All four inputs of a policy: integers must be equal, and floats up to rounding."""
    expect(listed(wanted.keys() & set(INPUTS) - found.keys()), f"what is missing {said}").equals("nothing")
    expect_close(found["pixel_values"], wanted["pixel_values"], f"the pixel values {said}")
    expect(words(found["input_ids"]), f"the first prompt {said}").equals(words(wanted["input_ids"]))
    for name in ("input_ids", "attention_mask"):
        expect(found[name], f"the {INPUTS[name]} {said}").equals(wanted[name])
    expect_close(found["state"], wanted["state"], f"the state {said}")


def expect_close(found: Tensor, wanted: Tensor, what: str) -> None:
    """Equal up to rounding, relative to the length of `wanted`."""
    expect(found, what).has_shape(*wanted.shape)
    expect(relative_error(found, wanted), f"the relative difference of {what}").at_most(ROUNDING)


def expect_weights(found: Mapping[str, Tensor], policy: Policy | Mapping[str, Tensor], who: str) -> None:
    """Every tensor of a policy, bit for bit."""
    wanted = policy.state_dict() if isinstance(policy, Policy) else policy
    differs = sorted(name for name in wanted.keys() | found.keys() if not same(found.get(name), wanted.get(name)))
    expect(differs[0] if differs else "none", f"the first tensor that {who} lacks or has otherwise").equals("none")


def expect_moved_alike(found: Mapping[str, Tensor], trained: Policy, base: Policy) -> None:
    """The weights must have moved from the base as the reference's have."""
    start, end = (torch.cat([p.flatten() for p in model.parameters()]).detach() for model in (base, trained))
    names = [name for name, _ in base.named_parameters()]
    moved = torch.cat([found[name].flatten() for name in names]) - start
    expect(relative_error(moved, end - start), "the relative difference in how the weights have changed").at_most(3e-4)


def of_settings(settings: Settings | None) -> str:
    """The settings in a message."""
    return "with the settings of the fine-tuning" if settings is None else f"with {told(settings)}"


def brief(error: str | None) -> str:
    """The beginning of an error, in one line."""
    return "none" if error is None else " ".join(error.split())[:200]


def agreed(evidence: Mapping[str, Any], stock: bool) -> list[dict[str, bool]]:
    """The facts with the settings of the fine-tuning, or with all others."""
    prefix = "test_both_paths_agree/what agrees "
    with_stock = f"{prefix}{of_settings(None)}"
    return [value for name, value in evidence.items() if name.startswith(prefix) and (name == with_stock) == stock]


def unknown_settings(evidence: Mapping[str, Any]) -> set[str]:
    """What came of checkpoints with a setting that a processor does not have."""
    prefix = "test_settings_come_from_the_file/the result of loading a checkpoint with the setting"
    return {str(value) for name, value in evidence.items() if name.startswith(prefix)}


@wrong_fix(
    "only_the_crop",
    says="The image is now the same on both paths, but the prompt is not: the policy reads the instruction without the words around it. Compare all four inputs of the policy, not the one that you suspect.",
)
def recognise_only_the_crop(evidence: Mapping[str, Any]) -> bool:
    return any(
        one["pixels"] and one["prompts_by_default"] and one["training_as_set"] for one in agreed(evidence, stock=True)
    )


@wrong_fix(
    "only_the_prompt",
    says="The prompt is now the same on both paths, but the image is not: the robot's policy still sees the whole image. Compare all four inputs of the policy, not the one that you suspect.",
)
def recognise_only_the_prompt(evidence: Mapping[str, Any]) -> bool:
    return any(
        one["prompts"] and one["pixels_by_default"] and one["training_as_set"] for one in agreed(evidence, stock=True)
    )


@wrong_fix(
    "settings_of_this_policy",
    says="The robot now prepares every observation as this policy was trained, whatever the checkpoint says. The next checkpoint with another crop or another prompt has the fault again.",
)
def recognise_settings_of_this_policy(evidence: Mapping[str, Any]) -> bool:
    others = agreed(evidence, stock=False)
    return bool(others) and all(one["robot_as_stock"] and one["training_as_set"] for one in others)


@wrong_fix(
    "trained_by_default",
    says="Both paths are the same now, because training no longer uses its settings either. The checkpoints that exist were trained with theirs, and their robots still prepare observations differently.",
)
def recognise_trained_by_default(evidence: Mapping[str, Any]) -> bool:
    every = [*agreed(evidence, stock=True), *agreed(evidence, stock=False)]
    return bool(every) and all(one["training_by_default"] and one["pixels"] and one["prompts"] for one in every)


@wrong_fix(
    "unknown_settings_left_out",
    says="The settings arrive, and those that this processor does not have are still left out without a word: the next robot whose program is older than its checkpoint prepares observations differently, and nobody is told.",
)
def recognise_unknown_left_out(evidence: Mapping[str, Any]) -> bool:
    every = [*agreed(evidence, stock=True), *agreed(evidence, stock=False)]
    arrive = all(one["pixels"] and one["prompts"] and one["training_as_set"] for one in every)
    return bool(every) and arrive and NONE in unknown_settings(evidence)
