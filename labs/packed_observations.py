"""Observations of many robots, packed into one row, for the checks of lab 27: how long each is, and where it begins."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng
from labs.invariants import WORDS, random_batch

PATCHES = 16
PER_OBSERVATION = "from 0 in each observation"

Observations = dict[str, Tensor]


def fleet(rng: Rng, robots: int, side: str = "right") -> Observations:
    """Observations of this many robots, whose instructions of 2 to 8 tokens are padded on one side."""
    return observations(rng, rng.integers(2, WORDS + 1, robots).tolist(), WORDS, side)


def observations(rng: Rng, words: list[int], width: int, side: str) -> Observations:
    """A random batch whose instructions have this many tokens, padded to `width` columns on one side."""
    columns = torch.arange(width) if side == "right" else torch.arange(width).flip(0)
    batch = random_batch(rng, len(words))
    batch["input_ids"] = rng.integers(2, 12, len(words), width)
    batch["attention_mask"] = (columns < torch.tensor(words)[:, None]).long()
    return batch


def tokens_of(batch: Observations) -> list[int]:
    """The number of tokens of each observation: patches, instruction and state."""
    return [PATCHES + int(words) + 1 for words in batch["attention_mask"].sum(dim=1)]


def counted(positions: Any, lengths: list[int]) -> str:
    """How the positions that the rotary embedding got are counted, in words."""
    if isinstance(positions, Tensor) and positions.numel() == sum(lengths):
        found = positions.flatten().double()
        if torch.equal(found, torch.arange(sum(lengths)).double()):
            return "through the row"
        if torch.equal(found, torch.cat([torch.arange(length) for length in lengths]).double()):
            return PER_OBSERVATION
    return "in another way"
