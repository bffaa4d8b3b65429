"""Demonstrations: which frames train, which are held out, and the batches of an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labs.vla.dataset import Batch, Frames, collate, demonstrations

Settings = Mapping[str, Any]
Indices = NDArray[np.int64]


def draw(settings: Settings) -> Frames:
    """All demonstrations of a project."""
    return demonstrations(settings["frames"], seed=settings["data_seed"])


def split(count: int, settings: Settings) -> tuple[Indices, Indices]:
    """The frames that train and those that are held out; no frame is in both, and every run has the same ones.

    Three frames in a row show one table, so the frames are divided by tables.
    """
    tables = np.random.default_rng(settings["data_seed"]).permutation(count // 3)
    frames = (3 * tables[:, None] + np.arange(3)).reshape(-1)
    held_out = 3 * (int(count * settings["held_out"]) // 3)
    return frames[held_out:], frames[:held_out]


def epoch(frames: Frames, chosen: Indices, settings: Settings, number: int) -> Iterator[Batch]:
    """The batches of one epoch, in an order of its own; the incomplete last batch is left out."""
    rng = np.random.default_rng(settings["seed"] + number)
    order = rng.permutation(chosen)
    size = settings["batch_size"]
    for first in range(0, len(order), size):
        part = order[first : first + size]
        if len(part) < size:
            break
        yield collate(frames, part)


def whole(frames: Frames, chosen: Indices) -> Batch:
    """All chosen frames as one batch."""
    return collate(frames, chosen)
