"""What must hold for prompts with places for images. Runs in the grader's process and never sees the learner's code.

The reference builds each prompt from its parts, an instruction that was cut to the room that the images leave, and puts
the features of the stock policy's vision tower into it. So each prompt, loss and chunk has one correct value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import (
    ACTION_DIM,
    HORIZON,
    STATE_DIM,
    TOLERANCE,
    expect_equal,
    expect_success_rate,
    relative_error,
)
from labs.policy_comparison import expect_gradients_of
from labs.vla.language import BOS_ID, PAD_ID, TOKEN_ID, VOCABULARY
from labs.vla.policy import Policy
from labs.vla.vision import normalize_pixels

MAX_LENGTH, PATCHES, IMAGE_ID = 40, 16, -200
SPOKEN = VOCABULARY[2:]
"""The words that people say: the vocabulary without padding and beginning."""
CASES: tuple[tuple[int, int | None, tuple[int, ...]], ...] = (
    (1, None, (2, 23, 24, 60)),
    (2, None, (2, 0, 7, 8, 12, 40)),
    (3, 60, (5, 11, 12, 20)),
    (2, 64, (12, 31, 33)),
    (4, 65, (3,)),
)
"""Cameras, `max_length` (None: the default), and how many words the instructions of the batch have."""
MIXED = (3, 12, 2)
"""Words of the instructions of a batch in which one is too long for two cameras."""
EPISODES = 50
SUCCESS_BAR = 0.8

Prompt = list[int]


@check(
    kind="behaviour",
    title="Every patch has its place, however long the instruction",
    property="A prompt must have 16 placeholders for each camera: for instructions that fit, that just fit and that do not, with any number of cameras and any `max_length`.",
    instrument="python -c \"from policy import *; print((encode_prompts(['go to red', 'go to red' + 9 * ' now'], 2)[0] == IMAGE_ID).sum(1))\"",
)
def test_every_patch_has_its_place(submission: Submission, rng: Rng) -> None:
    for cameras, max_length, counts in CASES:
        ids = encoded(submission, spoken(rng, counts), cameras, max_length)
        expect(len(ids), f"the number of prompts for {len(counts)} instructions").equals(len(counts))
        for row, count in zip(ids, counts, strict=True):
            places = int((row == IMAGE_ID).sum())
            what = f"the number of placeholders for {said(cameras, max_length, count)}"
            expect(places, what).equals(cameras * PATCHES)


@check(
    kind="behaviour",
    title="Only the last words of an instruction are dropped",
    property="Every prompt must have `max_length` tokens: the first image, `<bos>` and the instruction, the other images, padding. Only the last words that do not fit are missing, and the mask is 0 for padding only.",
    instrument="python -c \"from policy import *; print(encode_prompts(['go to red' + 9 * ' now'], 2)[0])\"",
)
def test_only_the_last_words_are_dropped(submission: Submission, rng: Rng) -> None:
    expect(how_prompts_are_made(submission, rng), HOW)
    for cameras, max_length, counts in CASES:
        instructions = spoken(rng, counts)
        seen = submission.observe("prompts", instructions=instructions, cameras=cameras, max_length=max_length)
        for row, (instruction, count) in enumerate(zip(instructions, counts, strict=True)):
            prompt = said(cameras, max_length, count)
            wanted = prompt_of(instruction, cameras, max_length or MAX_LENGTH)
            expect(len(seen["input_ids"][row]), f"the number of tokens of {prompt}").equals(len(wanted))
            kept = int((seen["input_ids"][row] >= BOS_ID).sum())
            expect(kept, f"the number of words, with `<bos>`, in {prompt}").equals(sum(i >= BOS_ID for i in wanted))
            expect(seen["input_ids"][row], f"the ids of {prompt}").equals(torch.tensor(wanted))
            real = torch.tensor([int(token != PAD_ID) for token in wanted])
            expect(seen["attention_mask"][row], f"the mask of {prompt}").equals(real)


@check(
    kind="behaviour",
    title="Each image is read where its placeholders are",
    property="Loss, gradients and chunk must be those of the pretrained base on these prompts, with the features of each frame in its own places: for one camera and two, and where only one instruction of the batch is too long.",
    instrument="debugkit.check(policy, batch, select=['DK007'])",
)
def test_images_are_read_in_their_places(submission: Submission, rng: Rng) -> None:
    for cameras, counts in ((1, (2, 30)), (2, (3,)), (2, MIXED), (2, (9, rng.integer(10, 20), 1, 4, 30))):
        observed, targets, seed = observations(rng, cameras, counts), random_targets(rng, len(counts)), rng.seed()
        seen = submission.observe("step", observed=observed, targets=targets, seed=seed)
        which = f"instructions of {listing(counts)} words and {'two cameras' if cameras > 1 else 'one camera'}"
        policy = Policy.from_base(seed=seed)
        if counts == MIXED:
            expect(how_images_are_read(seen["chunk"], policy, observed), READ)
        feature = read(policy, *correct(policy, observed), observed["state"])
        loss = policy.loss(feature, targets["action"], targets["action_is_pad"])
        expect_equal(seen["chunk"], policy.decode(feature).detach(), f"the chunk for {which}")
        expect(seen["loss"], f"the loss for {which}").close_to(loss.detach(), rtol=TOLERANCE, atol=1e-6)
        loss.backward()
        expect_gradients_of(policy, seen["gradients"], f"with {which}")


@check(
    kind="invariant",
    title="A place too many or too few is an error",
    property="`encode_prompts` must raise ValueError if the images leave no token for the instruction. The policy must raise ValueError for a batch with more or fewer placeholders than patches.",
    instrument="python -c \"from policy import *; print(encode_prompts(['go to red'], 3))\"",
)
def test_wrong_counts_are_errors(submission: Submission, rng: Rng) -> None:
    for cameras, max_length in ((3, None), (2, 32), (1, 16), (4, 50)):
        seen = submission.observe("prompts", instructions=spoken(rng, (3,)), cameras=cameras, max_length=max_length)
        what = f"what `encode_prompts` raises for {cameras} images in {max_length or MAX_LENGTH} tokens"
        expect(seen["raised"], what).equals("ValueError")
    for change, said_as in ((PAD_ID, "one placeholder less"), (IMAGE_ID, "one placeholder more")):
        batch = policy_inputs(observations(rng, 2, (4, 2)))
        batch["input_ids"][1, 0 if change == PAD_ID else PATCHES] = change
        raised = submission.observe("raised_by_the_policy", batch=batch)
        expect(raised, f"what the policy raises for a batch with {said_as} than patches").equals("ValueError")


@check(
    kind="invariant",
    title="Every image and the instruction matter",
    property="Another image of any camera, and another instruction, must each change the predicted chunk, with a long instruction as well as with a short one.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_images_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    seed = rng.seed()
    for count in (4, 15):
        observed = observations(rng, 2, (count, count, count))
        targets = random_targets(rng, 3)
        chunk = submission.observe("step", observed=observed, targets=targets, seed=seed)["chunk"]
        expect(chunk, f"the chunk for instructions of {count} words").has_shape(3, HORIZON, ACTION_DIM)
        others = {"another instruction": {"instructions": observed["instructions"][::-1]}}
        for camera, name in enumerate(("first", "second")):
            images = observed["images"].clone()
            images[:, camera] = 255 - images[:, camera]
            others[f"another image of the {name} camera"] = {"images": images}
        for name, other in others.items():
            moved = submission.observe("step", observed={**observed, **other}, targets=targets, seed=seed)["chunk"]
            changed = (moved - chunk).norm() / chunk.norm()
            expect(changed, f"the relative change of the chunks under {name}, for {count} words,").above(TOLERANCE)


@check(
    kind="outcome",
    title="The robot with two cameras grasps, whatever people add",
    property=f"After a short fine-tuning on instructions of up to 13 words, at least {SUCCESS_BAR:.0%} of {EPISODES} episodes on new tables must end with a grasp of the named block.",
    instrument="lab run 06",
)
def test_robot_grasps(submission: Submission, seed: int) -> None:
    result = submission.observe("trained_rollout", seed=seed, episodes=EPISODES)
    expect_success_rate(result["success"], episodes=EPISODES, at_least=SUCCESS_BAR)


HOW = "how prompts are made"
READ = "how images are read"


def prompt_of(instruction: str, cameras: int, max_length: int = MAX_LENGTH) -> Prompt:
    """The reference: the room that the images leave is the instruction's."""
    image = [IMAGE_ID] * PATCHES
    room = max_length - cameras * PATCHES
    words = words_of(instruction)[:room]
    padding = [PAD_ID] * (room - len(words))
    return [*image, *words, *image * (cameras - 1), *padding]


def words_of(instruction: str) -> Prompt:
    """The beginning and the words, as ids."""
    return [BOS_ID, *(TOKEN_ID[word] for word in instruction.split())]


def whole(instruction: str, cameras: int) -> Prompt:
    """The prompt without a limit."""
    image = [IMAGE_ID] * PATCHES
    return [*image, *words_of(instruction), *image * (cameras - 1)]


def spoken(rng: Rng, counts: Sequence[int]) -> list[str]:
    """Instructions of so many words each."""
    return [" ".join(rng.choice(SPOKEN) for _ in range(count)) for count in counts]


def observations(rng: Rng, cameras: int, counts: Sequence[int]) -> dict[str, Any]:
    """Random images and states, and instructions of so many words that all begin with another word."""
    first = rng.permutation(len(SPOKEN))[: len(counts)].tolist()
    said = spoken(rng, [count - 1 for count in counts])
    return {
        "images": rng.integers(0, 256, len(counts), cameras, 64, 64, 3).to(torch.uint8),
        "state": rng.uniform(len(counts), STATE_DIM),
        "instructions": [f"{SPOKEN[word]} {rest}".strip() for word, rest in zip(first, said, strict=True)],
    }


def random_targets(rng: Rng, size: int) -> dict[str, Tensor]:
    """Actions of random chunks, of which the first one to four steps are no padding."""
    steps = rng.integers(1, HORIZON + 1, size)
    return {
        "action": rng.uniform(size, HORIZON, ACTION_DIM, low=-0.1, high=0.1),
        "action_is_pad": torch.arange(HORIZON)[None] >= steps[:, None],
    }


def policy_inputs(observed: Mapping[str, Any]) -> dict[str, Tensor]:
    """The batch that correct prompts make of observations."""
    images: Tensor = observed["images"]
    ids = torch.tensor([prompt_of(instruction, images.shape[1]) for instruction in observed["instructions"]])
    return {
        "pixel_values": normalize_pixels(images.flatten(0, 1)).unflatten(0, images.shape[:2]),
        "input_ids": ids,
        "attention_mask": (ids != PAD_ID).long(),
        "state": observed["state"],
    }


def features_of(policy: Policy, observed: Mapping[str, Any]) -> Tensor:
    """The features of all patches of each frame, (B, C * P, D)."""
    images: Tensor = observed["images"]
    features = policy.embed_images(normalize_pixels(images.flatten(0, 1)))
    return features.unflatten(0, images.shape[:2]).flatten(1, 2)


def correct(policy: Policy, observed: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """The correct prompts (B, L), and what belongs into their places (N, D)."""
    return policy_inputs(observed)["input_ids"], features_of(policy, observed).flatten(0, 1)


def read(policy: Policy, ids: Tensor, features: Tensor, state: Tensor) -> Tensor:
    """What the head of a policy receives if `features` (N, D), in this order, are in the places of `ids`: (B, D)."""
    words = policy.embed_instruction(ids.clamp(min=PAD_ID))
    own = policy.embed_state(state)
    embeddings = torch.cat([words.masked_scatter((ids == IMAGE_ID)[..., None], features), own], dim=1)
    mask = torch.cat([(ids != PAD_ID).long(), torch.ones(len(ids), 1, dtype=torch.long)], dim=1)
    return policy.run_language_model(embeddings, mask)[:, -1]


def how_images_are_read(chunk: Tensor, policy: Policy, observed: Mapping[str, Any]) -> str:
    """How the policy puts images into the prompts of the starter, in which places are missing, if it does not raise."""
    cut = [whole(instruction, 2)[:MAX_LENGTH] for instruction in observed["instructions"]]
    ids = torch.tensor([prompt + [PAD_ID] * (MAX_LENGTH - len(prompt)) for prompt in cut])
    places = (ids == IMAGE_ID).sum(dim=1).tolist()
    features = features_of(policy, observed)
    own = torch.cat([frame[:count] for frame, count in zip(features, places, strict=True)])
    for name, prompts, filled in (
        ("correct", *correct(policy, observed)),
        ("next_in_line", ids, features.flatten(0, 1)),
        ("own_without_the_last", ids, own),
    ):
        with torch.no_grad():
            if relative_error(chunk, policy.decode(read(policy, prompts, filled, observed["state"]))) < TOLERANCE:
                return name
    return "another"


def how_prompts_are_made(submission: Submission, rng: Rng) -> str:
    """What distinguishes the prompts of two cameras from the correct ones, if it is a known way to make them."""
    counts = (23, 12, 5)
    instructions = spoken(rng, counts)
    made = {cameras: encoded(submission, instructions, cameras, None) for cameras in (1, 2)}
    widths = {ids.shape[1] for ids in made.values()}
    if min(widths) > MAX_LENGTH:
        return "longer" if len(widths) == 1 else "another"
    ways = {
        "correct": lambda text, cameras: prompt_of(text, cameras),
        "last_tokens": lambda text, cameras: whole(text, cameras)[-MAX_LENGTH:],
        "images_first": lambda text, cameras: ([IMAGE_ID] * PATCHES * cameras + words_of(text))[:MAX_LENGTH],
        "always_eight": lambda text, cameras: whole(" ".join(text.split()[:7]), cameras),
    }
    for name, way in ways.items():
        if all(
            without_padding(row) == without_padding(torch.tensor(way(text, cameras)))
            for cameras, ids in made.items()
            for row, text in zip(ids, instructions, strict=True)
        ):
            return name
    return "another"


def without_padding(row: Tensor) -> Prompt:
    """The ids of a prompt up to its padding."""
    ids: Prompt = row[row != PAD_ID].tolist()
    return ids


def encoded(submission: Submission, instructions: list[str], cameras: int, max_length: int | None) -> Tensor:
    """The ids of prompts (B, L)."""
    seen = submission.observe("prompts", instructions=instructions, cameras=cameras, max_length=max_length)
    expect(seen["raised"], f"what `encode_prompts` raises for prompts with {cameras} images").equals(None)
    ids: Tensor = seen["input_ids"]
    return ids


def said(cameras: int, max_length: int | None, count: int) -> str:
    """A prompt in words."""
    if max_length:
        return f"{cameras} images, {count} words and at most {max_length} tokens"
    return f"{cameras} images and {count} words" if cameras > 1 else f"one image and {count} words"


def listing(counts: Sequence[int]) -> str:
    """The numbers with commas."""
    return ", ".join(map(str, counts))


@wrong_fix(
    "raise_max_length",
    says="The prompt is longer, for every instruction. The robot's language model takes 40 tokens, and the next longer sentence cuts an image again.",
)
def recognise_longer(evidence: Mapping[str, Any]) -> bool:
    return bool(evidence[f"{DROPPED}/{HOW}"] == "longer")


@wrong_fix(
    "keep_the_last_tokens",
    says="This cuts at the other end: the first image loses its places there, and the instruction keeps every word.",
)
def recognise_last(evidence: Mapping[str, Any]) -> bool:
    return bool(evidence[f"{DROPPED}/{HOW}"] == "last_tokens")


@wrong_fix(
    "images_before_the_instruction",
    says="With all images in front, only words can be cut. But the policies in use were trained with one image before the instruction and the others behind it, and now get another order.",
)
def recognise_order(evidence: Mapping[str, Any]) -> bool:
    return bool(evidence[f"{DROPPED}/{HOW}"] == "images_first")


@wrong_fix(
    "always_eight_tokens",
    says="The instruction is cut to what two cameras leave. A robot with one camera has room for 23 words, and now understands 7.",
)
def recognise_eight(evidence: Mapping[str, Any]) -> bool:
    return bool(evidence[f"{DROPPED}/{HOW}"] == "always_eight")


@wrong_fix(
    "without_the_count",
    says="Nothing raises, because nothing counts. The features that have no place move on to the next frame: every frame behind a long instruction sees parts of another one's images.",
)
def recognise_no_count(evidence: Mapping[str, Any]) -> bool:
    return bool(evidence[f"{IMAGES}/{READ}"] == "next_in_line")


@wrong_fix(
    "drop_the_features",
    says="The counts are equal again, because the features without a place are thrown away: the longer the instruction, the less the robot sees of the last image.",
)
def recognise_dropped(evidence: Mapping[str, Any]) -> bool:
    return bool(evidence[f"{IMAGES}/{READ}"] == "own_without_the_last")


DROPPED, IMAGES = "test_only_the_last_words_are_dropped", "test_images_are_read_in_their_places"
