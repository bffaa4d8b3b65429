"""The random input of each aspect: the arguments of its probe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from labs.grading.rng import Rng

WORDS = ("take", "move", "the", "red", "blue", "left", "right", "slowly", "now")
SIDE, TOKENS, JOINTS, NUMBERS = 16, 6, 5, 3
"""Pixels a side, columns of text in a batch, numbers of a state and of an action."""
Batch = dict[str, Tensor]


@dataclass(frozen=True)
class Facts:
    """What the inputs depend on: the healthy program's sizes and values, and the names that a recipe has."""

    horizon: int
    state: Mapping[str, Tensor]
    names: Mapping[str, str]
    coarse: bool
    """Whether the program trains in bfloat16, where another order of operations rounds to another value."""
    vocabulary: int
    """How many tokens there are; the first is padding."""
    columns: int
    """The length that sentences are cut at."""
    from_the_left: bool
    """Whether padding is on the left of an instruction."""


def random_state(rng: Rng, healthy: Mapping[str, Tensor]) -> Batch:
    """Values of a checkpoint in which no bias is zero and no scale is one."""
    return {name: _changed(rng, name, one) for name, one in healthy.items()}


def _changed(rng: Rng, name: str, one: Tensor) -> Tensor:
    if not one.is_floating_point():
        return one.clone()
    noise = rng.normal(*one.shape)
    if name.endswith((".running_var", ".std", ".span")):
        return 0.5 + noise.abs()
    if name.endswith((".running_mean", ".mean", ".low")):
        return 0.3 * noise
    return one + 0.05 * noise + 0.3 * one.std(unbiased=False) * noise


def random_batch(rng: Rng, size: int, facts: Facts, columns: int = TOKENS) -> Batch:
    """Frames with random images, text of different lengths and padded ends of chunks."""
    lengths = rng.integers(1, TOKENS + 1, size, 1)
    lengths[0] = min(3, TOKENS)
    attention_mask = (torch.arange(columns) < lengths).long()
    if facts.from_the_left:
        attention_mask = attention_mask.flip(1)
    steps = rng.integers(1, facts.horizon + 1, size, 1)
    steps[0] = facts.horizon - 1
    return {
        "image": rng.integers(0, 256, size, SIDE, SIDE, 3).to(torch.uint8),
        "input_ids": rng.integers(1, facts.vocabulary, size, columns) * attention_mask,
        "attention_mask": attention_mask,
        "state": rng.normal(size, JOINTS),
        "action": 1.5 * rng.normal(size, facts.horizon, NUMBERS),
        "action_is_pad": torch.arange(facts.horizon) >= steps,
    }


def _of_sizes(rng: Rng, facts: Facts, *sizes: int) -> list[Batch]:
    return [random_batch(rng, size, facts) for size in sizes]


def outputs_inputs(rng: Rng, facts: Facts) -> dict[str, Any]:
    batches = _of_sizes(rng, facts, 1, 2, 5, facts.horizon)
    wide = random_batch(rng, 4, facts, TOKENS + 3)
    silent = random_batch(rng, 3, facts)
    silent["attention_mask"][1] = 0  # an empty instruction
    far = random_batch(rng, 4, facts)
    far["state"] = 40.0 * far["state"]
    return {"state": dict(facts.state), "batches": [*batches, wide, far], "wordless": silent}


def one_batch(rng: Rng, facts: Facts) -> dict[str, Any]:
    return {"state": dict(facts.state), "batch": random_batch(rng, 6, facts)}


def checkpoint_inputs(_rng: Rng, facts: Facts) -> dict[str, Any]:
    return {"state": dict(facts.state)}


def nothing(_rng: Rng, _facts: Facts) -> dict[str, Any]:
    return {}


def training_inputs(rng: Rng, facts: Facts) -> dict[str, Any]:
    *batches, check = _of_sizes(rng, facts, 6, 4, 6, 3, 6, 5, 6, 4, 5)
    return {"state": dict(facts.state), "batches": batches, "check": check}


def evaluation_inputs(rng: Rng, facts: Facts) -> dict[str, Any]:
    return {"state": dict(facts.state), "batches": _of_sizes(rng, facts, 6, 6, 1)}


def data_inputs(rng: Rng, facts: Facts) -> dict[str, Any]:
    episodes = []
    for length in (facts.horizon + 2, 1, facts.horizon):
        words = random_batch(rng, 1, facts)
        episodes.append(
            {
                "image": rng.integers(0, 256, length, SIDE, SIDE, 3).to(torch.uint8),
                "input_ids": words["input_ids"][0],
                "attention_mask": words["attention_mask"][0],
                "state": rng.normal(length, JOINTS),
                "action": rng.normal(length, NUMBERS),
            }
        )
    return {"episodes": episodes, "horizon": facts.horizon}


def order_inputs(rng: Rng, _facts: Facts) -> dict[str, Any]:
    return {"length": 6 * rng.integer(4, 7) + 1, "seed": rng.integer(1, 1000)}


def scaling_inputs(rng: Rng, facts: Facts) -> dict[str, Any]:
    batch = random_batch(rng, 30, facts)
    spread, centre = torch.tensor([0.07, 2.0, 0.0]), torch.tensor([0.2, -1.0, 0.5])
    real = spread * batch["action"] + centre  # the last number is constant
    action = torch.where(batch["action_is_pad"][..., None], torch.tensor(9.0), real)
    return {"action": action, "action_is_pad": batch["action_is_pad"], "others": real[:4]}


def tokens_inputs(rng: Rng, facts: Facts) -> dict[str, Any]:
    counts = (1, 3, 5, 8, rng.integer(1, 9))
    return {"sentences": [_sentence(rng, count) for count in counts], "length": facts.columns}


def _sentence(rng: Rng, count: int) -> str:
    return " ".join(WORDS[number] for number in rng.integers(0, len(WORDS), count).tolist())


def serving_inputs(rng: Rng, facts: Facts) -> dict[str, Any]:
    steps = 20
    return {
        "state": dict(facts.state),
        "images": rng.integers(0, 256, steps, SIDE, SIDE, 3).to(torch.uint8),
        "states": rng.normal(steps, JOINTS),
        "sentences": [_sentence(rng, rng.integer(1, 6)) for _ in range(steps)],
        "reset_at": [0, 5, 10, 15],
    }


def resume_inputs(rng: Rng, facts: Facts) -> dict[str, Any]:
    return {"state": dict(facts.state), "batches": _of_sizes(rng, facts, *[5] * 8), "at": 4}


def memory_inputs(rng: Rng, facts: Facts) -> dict[str, Any]:
    return {"state": dict(facts.state), "batches": _of_sizes(rng, facts, 2, 2)}


def recipe_inputs(_rng: Rng, facts: Facts) -> dict[str, Any]:
    rate, warmup, norm = (facts.names[name] for name in ("rate", "warmup", "max_norm"))
    file = {rate: "2e-4", warmup: 7, "shuffle": "false"}
    return {"file": file, "command_line": {rate: "5e-4", norm: "3"}, "unknown": f"{rate}s"}


def combine_inputs(rng: Rng, _facts: Facts) -> dict[str, Any]:
    frames = [[4, 4], [7, 1], [5, 0, 3], [0, 0]]
    return {"losses": [[float(one) for one in rng.uniform(len(some)).tolist()] for some in frames], "frames": frames}
