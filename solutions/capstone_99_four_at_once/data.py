"""Demonstrations of all arms, and the batches that a run trains on.

Notable choices
- The frames are dealt out to the arms in turn: every arm has as many as any other.
- The policy learns movements in the table's frame, so demonstrations of one arm serve all of them.
- A frame is prepared when it is read, as a data loader's workers do it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from cell import arms_of
from pictures import standardize

from labs.vla.dataset import Batch, Frames, collate, demonstrations


class CellFrames:
    """The frames of a run. Frame i is of arm `i % len(arms)`."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.arms = arms_of(config)
        self.frames: Frames = demonstrations(config["train"]["frames"], seed=config["seed"])

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: int) -> Batch:
        """One frame as a batch of one, with the picture of its arm's camera."""
        picture = self.arms[index % len(self.arms)].see(self.frames.image[index])
        return {**collate(self.frames, [index]), "pixel_values": standardize(picture[None])}


def batches(config: Mapping[str, Any]) -> Iterator[Batch]:
    """The batches of a run, in an order drawn from the seed; no frame a second time before all were used."""
    frames, size = CellFrames(config), config["train"]["batch_size"]
    rng = np.random.default_rng(config["seed"])
    order = rng.permutation(len(frames))
    for _ in range(config["train"]["steps"]):
        if len(order) < size:
            order = rng.permutation(len(frames))
        chosen, order = order[:size], order[size:]
        rows = [frames[int(index)] for index in chosen]
        yield {name: torch.cat([row[name] for row in rows]) for name in rows[0]}
