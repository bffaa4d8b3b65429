"""How lab 48's docstring prepares observations, for its checks: the reference, and random frames and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from labs.grading import Rng
from labs.invariants import relative_error
from labs.reference_training import train_step
from labs.vla.dataset import Batch
from labs.vla.language import COLOURS, INSTRUCTION_TEMPLATES, PAD_ID, TOKEN_ID, detokenize
from labs.vla.policy import Policy
from labs.vla.training import learning_rate_at
from labs.vla.vision import PIXEL_MEAN, PIXEL_STD

Settings = dict[str, Any]
"""`crop`, `prompt` and `length`; one that is missing has its default."""
DEFAULTS: Settings = {"crop": 1.0, "prompt": "{task}", "length": 8}
STOCK: Settings = {"crop": 0.8, "prompt": "please move to the block now {task}", "length": 16}
"""What the lab's policy is fine-tuned with."""
ROUNDING = 1e-5
"""Relative to the size of the values; the two paths of a fixed program are identical."""
INPUTS = {
    "pixel_values": "pixel values",
    "input_ids": "token ids",
    "attention_mask": "attention mask",
    "state": "state",
}
PROMPTS = ("please {task} now", "now {task}", "move to the block now please {task}", "the block {task} please")
TASKS = ["go to red", "reach the blue block", "go to green"]
OTHER_TASKS = ["go to blue", "reach the green block", "go to yellow"]
"""Tasks of the same lengths, with other colours."""
LEARNING_RATE = 1e-3
SIDE = 64


def prepared(raw: Mapping[str, Any], settings: Settings) -> Batch:
    """The policy's input for raw frames."""
    used = {**DEFAULTS, **settings}
    side = raw["image"].shape[1]
    kept = round(used["crop"] * side)
    first = (side - kept) // 2
    pixels = (raw["image"].permute(0, 3, 1, 2).float() / 255 - PIXEL_MEAN) / PIXEL_STD
    pixels = pixels[:, :, first : first + kept, first : first + kept]
    ids = torch.full((len(raw["state"]), used["length"]), PAD_ID)
    for row, task in enumerate(raw["instruction"]):
        words = ["<bos>", *used["prompt"].replace("{task}", task).split()]
        numbers = [TOKEN_ID[word] for word in words][: used["length"]]
        ids[row, : len(numbers)] = torch.tensor(numbers)
    return {
        "pixel_values": F.interpolate(pixels, (SIDE, SIDE), mode="bilinear", antialias=True),
        "input_ids": ids,
        "attention_mask": (ids != PAD_ID).long(),
        "state": raw["state"],
    }


def random_frames(rng: Rng, size: int, side: int, horizon: int = 4) -> dict[str, Any]:
    """Raw frames with images (N, side, side, 3); no two have the same state."""
    tasks = [rng.choice(INSTRUCTION_TEMPLATES).format(colour=rng.choice(COLOURS)) for _ in range(size)]
    return {
        "image": rng.integers(0, 256, size, side, side, 3).to(torch.uint8),
        "state": rng.uniform(size, 3),
        "instruction": tasks,
        "action": rng.uniform(size, horizon, 3, low=-0.1, high=0.1),
        "action_is_pad": rng.integers(1, horizon + 1, size)[:, None] <= torch.arange(horizon)[None],
    }


def random_settings(rng: Rng) -> Settings:
    """Settings of which none is a default or that of the lab's fine-tuning."""
    return {
        "crop": round(0.5 + 0.01 * rng.integer(0, 28), 2),
        "prompt": rng.choice(PROMPTS),
        "length": rng.integer(9, 16),
    }


def told(settings: Settings) -> str:
    """Settings in a message: their names and values."""
    return ", ".join(f"`{name}={value!r}`" for name, value in settings.items()) or "no settings"


def rows_of(states: Tensor, known: Tensor) -> list[int]:
    """Which row of `known` each state is."""
    return (states[:, None] - known[None]).abs().sum(dim=-1).argmin(dim=1).tolist()


def reference_training(
    seed: int, inputs: Sequence[Batch], targets: Sequence[tuple[Tensor, Tensor]]
) -> tuple[Policy, list[float]]:
    """The base after one step on each input with its actions and padding, and the losses."""
    policy = Policy.from_base(seed=seed)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.01)
    losses = []
    for step, (batch, (action, is_pad)) in enumerate(zip(inputs, targets, strict=True)):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(step, len(inputs), LEARNING_RATE)
        losses.append(train_step(policy, optimizer, {**batch, "action": action, "action_is_pad": is_pad}))
    return policy, losses


def words(input_ids: Tensor) -> str:
    """The first row as words."""
    return detokenize(input_ids[:1])[0]


def facts(raw: Settings, settings: Settings | None, found: Mapping[str, Mapping[str, Tensor]]) -> dict[str, bool]:
    """What agrees with what, for the recognisers."""
    used = STOCK if settings is None else settings
    robot, training = found["robot"], found["training"]
    return {
        "pixels": agree(robot, training, "pixel_values"),
        "pixels_by_default": agree(robot, prepared(raw, DEFAULTS), "pixel_values"),
        "prompts": agree(robot, training, "input_ids"),
        "prompts_by_default": agree(robot, prepared(raw, DEFAULTS), "input_ids"),
        "training_as_set": all(agree(training, prepared(raw, used), name) for name in INPUTS),
        "training_by_default": all(agree(training, prepared(raw, DEFAULTS), name) for name in INPUTS),
        "robot_as_stock": all(agree(robot, prepared(raw, STOCK), name) for name in INPUTS),
    }


def agree(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], name: str) -> bool:
    """Whether an input is the same in both, up to rounding."""
    there = found.get(name)
    if there is None or there.shape != wanted[name].shape:
        return False
    return relative_error(there.double(), wanted[name].double()) < ROUNDING


def same(found: Tensor | None, wanted: Tensor | None) -> bool:
    """Bit for bit."""
    return found is not None and wanted is not None and torch.equal(found, wanted)
