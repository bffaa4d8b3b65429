"""Which frames each batch has: most are the next ones of the epoch, the others are replayed.

    epoch's order ── the next fresh frames ──┐
                                             ├── a batch's indices ── policy ── error of each frame ─┐
    table ── the frames with the largest errors ┘                                                    │
      └──────────────────────────────────────────── record ──────────────────────────────────────────┘

What the job relies on
- Each epoch has every frame once among the fresh ones, in an order that follows from the seed and the epoch's number
  alone. Frames left over at the end of an epoch, fewer than a batch needs, are not used in it.
- Replayed are the frames with the largest errors in the table, also such frames as are fresh in the same batch. A
  frame that has no error yet is not replayed; until enough have one, a batch has fresh frames in their place.
- The table is one float32 number for each frame, the last error recorded, and keeps nothing else alive.
- A sampler that has loaded the state of another one, of the same frames and seed, continues as that one would. The
  state's keys are those of checkpoints that earlier releases wrote, and these can be continued too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

UNKNOWN = -1.0
"""The table's number for a frame without an error."""


class ReplaySampler:
    """The indices of one batch after the other; `record` enters the errors of frames."""

    def __init__(self, frames: int, batch_size: int, replayed: int, seed: int) -> None:
        if not 0 <= replayed < batch_size <= frames:
            raise ValueError(f"{frames} frames do not give batches of {batch_size} with {replayed} replayed ones.")
        self.frames = frames
        self.batch_size = batch_size
        self.replayed = replayed
        self.seed = seed
        self.epoch = 0
        self.position = 0
        self.table = torch.full((frames,), UNKNOWN)
        self.order = self._order_of_epoch()

    def next_batch(self) -> Tensor:
        """The indices of the next batch, int64 (B,): the fresh frames first, then the replayed ones."""
        known = int((self.table != UNKNOWN).sum())
        replayed = self.replayed if known >= self.replayed else 0
        fresh = self.batch_size - replayed
        if self.position + fresh > self.frames:
            self.epoch += 1
            self.position = 0
            self.order = self._order_of_epoch()
        chosen = self.order[self.position : self.position + fresh]
        self.position += fresh
        return torch.cat([chosen, self.table.topk(replayed).indices])

    def record(self, indices: Tensor, errors: Tensor) -> None:
        """Enter the errors (B,) of the frames at `indices` (B,)."""
        self.table[indices] = errors

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes from batch to batch."""
        return {"epoch": self.epoch, "position": self.position, "table": self.table.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the sampler with this state was."""
        self.epoch = state["epoch"]
        self.position = state["position"]
        self.table.copy_(state["table"])

    def _order_of_epoch(self) -> Tensor:
        """All frames, in the order of the current epoch, int64 (N,)."""
        return torch.from_numpy(np.random.default_rng([self.seed, self.epoch]).permutation(self.frames))
