"""Several processes fine-tune one policy on the frames that were recorded on a robot, in epochs.

    ShuffledFrames ── BatchSampler ─────── RankBatches ────── RemainingBatches ── DataLoader ── policy
     the order of      batches of B         every W-th of      those that are       frames
     an epoch          frames               them: this         not done yet
                                            process's

Notable choices
- The order of an epoch follows from the seed and the epoch's number, in each process, so the processes divide the
  frames without sending anything. No two epochs have the same order or the same batches.
- An epoch shows a frame to one process, and once. All processes have equally many batches of the same size. The frames
  at the end of the order that do not fill a batch for each of them are left out of this epoch.
- A run that was stopped and continues gets the batches that it would have got without the stop.
- `frame_losses` visits all frames, in the order in which they were recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, Sampler, SequentialSampler

from labs.vla.dataset import Frames, collate
from labs.vla.policy import Policy
from labs.vla.training import MAX_GRADIENT_NORM, learning_rate_at


class ShuffledFrames(Sampler[int]):
    """The indices of all frames, in the order of an epoch."""

    def __init__(self, frames: int, seed: int) -> None:
        self.frames, self.seed = frames, seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """The epoch whose order the next iteration has."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        random = np.random.default_rng([self.seed, self.epoch])
        yield from random.permutation(self.frames).tolist()

    def __len__(self) -> int:
        return self.frames


class RankBatches(Sampler[list[int]]):
    """The batches of one process: the processes take turns, and a round that is not complete is left out."""

    def __init__(self, batches: BatchSampler, rank: int, world_size: int) -> None:
        self.batches, self.rank, self.world_size = batches, rank, world_size

    def set_epoch(self, epoch: int) -> None:
        """The epoch whose batches the next iteration has; batches in a fixed order have none."""
        if hasattr(self.batches.sampler, "set_epoch"):
            self.batches.sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[list[int]]:
        return islice(self.batches, self.rank, len(self) * self.world_size, self.world_size)

    def __len__(self) -> int:
        return len(self.batches) // self.world_size


class RemainingBatches(Sampler[list[int]]):
    """The batches of one process without the first ones, which a run has done before it was stopped."""

    def __init__(self, batches: RankBatches, done: int) -> None:
        self.batches, self.done = batches, done

    def set_epoch(self, epoch: int) -> None:
        """The epoch whose batches the next iteration has."""
        self.batches.set_epoch(epoch)

    def __iter__(self) -> Iterator[list[int]]:
        return islice(self.batches, self.done, None)

    def __len__(self) -> int:
        return len(self.batches) - self.done


def build_loader(
    frames: Frames, batch_size: int, *, rank: int = 0, world_size: int = 1, seed: int | None = None
) -> DataLoader[int]:
    """The batches of one process: with a seed to train on, without one in the recorded order, whatever the epoch."""
    if seed is None:
        batches = BatchSampler(SequentialSampler(frames), batch_size, drop_last=False)
    else:
        batches = BatchSampler(ShuffledFrames(len(frames), seed), batch_size, drop_last=True)
    sampler = RankBatches(batches, rank, world_size)
    return DataLoader(range(len(frames)), batch_sampler=sampler, collate_fn=partial(collate, frames))


def epoch_of(loader: DataLoader[int], epoch: int, done: int = 0) -> DataLoader[int]:
    """The batches of one epoch without the first `done`."""
    batches = RemainingBatches(loader.batch_sampler, done)
    batches.set_epoch(epoch)
    return DataLoader(loader.dataset, batch_sampler=batches, collate_fn=loader.collate_fn)


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: DataLoader[int],
    *,
    epochs: int,
    start: int = 0,
    learning_rate: float = 1e-3,
) -> list[float]:
    """Train until all epochs are over, in training mode, and return the losses of the steps that were taken.

    `start` steps have been taken before, with this model and this optimizer: 0 in a new run.
    """
    first, done = divmod(start, len(loader))
    losses: list[float] = []
    model.train()
    for epoch in range(first, epochs):
        for batch in epoch_of(loader, epoch, done if epoch == first else 0):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate_at(start + len(losses), epochs * len(loader), learning_rate)
            loss = model(**batch).loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
            optimizer.step()
            losses.append(loss.item())
    return losses


@torch.no_grad()
def frame_losses(policy: Policy, frames: Frames) -> Tensor:
    """The loss of each frame (N,) in the recorded order, in evaluation mode; leaves the policy in it."""
    policy.eval()
    return torch.stack([policy(**batch).loss for batch in epoch_of(build_loader(frames, batch_size=1), epoch=0)])


def build_policy(seed: int) -> Policy:
    """The pretrained base with an action head initialised from `seed`."""
    return Policy.from_base(seed=seed)


def fine_tune(
    frames: Frames, rank: int, world_size: int, address: str, *, epochs: int, batch_size: int, seed: int
) -> tuple[Policy, list[float]]:
    """Be process `rank` of `world_size` that train together; returns the policy and this process's losses."""
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world_size)
    policy = build_policy(seed)
    model = DistributedDataParallel(policy)
    optimizer = torch.optim.AdamW(policy.parameters(), betas=(0.9, 0.95), weight_decay=0.01)
    loader = build_loader(frames, batch_size, rank=rank, world_size=world_size, seed=seed)
    return policy, train(model, optimizer, loader, epochs=epochs)
