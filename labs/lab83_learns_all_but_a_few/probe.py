"""What the grader and `lab run` measure. Runs with the learner's code, in the sandboxed child.

Which frames a process trains on is read from the batches that its model gets. For that the processes run one after the
other, each with random states of its own, as if it had drawn other numbers before. `two_processes` are two real ones:
forks of the child that find each other through a file and communicate over the loopback interface.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from labs.vla.dataset import Batch, Frames, collate, demonstrations
from labs.vla.policy import PolicyOutput

FRAMES, BATCH_SIZE, EPOCHS = 30, 4, 60
LONGEST_S = 80.0
SHOWN, LEFT_OUT = 20, 6
LOOPBACK = "lo" if sys.platform == "linux" else "lo0"


def trained_on(
    learner: Any,
    *,
    frames: int,
    batch_size: int,
    world_size: int,
    epochs: int,
    seed: int,
    noise: int,
    starts: tuple[int, ...] = (0,),
    one_loader: bool = False,
) -> list[list[dict[str, Any]]]:
    """What each process trains on, for each start: `batches` are the frames of its steps, a list for each step.

    `losses` are the losses that it returns, `training` whether its model was in training mode in each step. With
    `one_loader` the runs of a process use one loader, else each has a new one. `noise` determines the random states.
    """
    recorded = numbered_frames(frames)
    seen = []
    for rank in range(world_size):
        loader, runs = None, []
        for number, start in enumerate(starts):
            drift = noise + 100 * rank + number
            with patch.object(time, "time", lambda drift=drift: 1e9 + 1000.0 * drift):
                _draw_other_numbers(drift)
                if loader is None or not one_loader:
                    shares = {"rank": rank, "world_size": world_size, "seed": seed}
                    loader = learner.policy.build_loader(recorded, batch_size, **shares)
                model = Recorder()
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                losses = learner.policy.train(model, optimizer, loader, epochs=epochs, start=start)
            runs.append({"batches": model.batches, "losses": len(losses), "training": model.modes})
        seen.append(runs)
    return seen


class Recorder(nn.Module):
    """Takes the policy's place, and notes the frames of every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.batches: list[list[int]] = []
        self.modes: list[bool] = []

    def forward(self, state: Tensor, **_: Tensor) -> PolicyOutput:
        """A loss that has a gradient."""
        self.batches.append(state[:, 0].long().tolist())
        self.modes.append(self.training)
        return PolicyOutput(loss=self.weight.square())


def numbered_frames(count: int) -> Frames:
    """Frames whose state is their number, and whose image is a single pixel."""
    return Frames(
        image=np.zeros((count, 1, 1, 3), dtype=np.uint8),
        state=np.repeat(np.arange(count, dtype=np.float32)[:, None], 3, axis=1),
        instruction=("go to the red block",) * count,
        action=np.zeros((count, 4, 3), dtype=np.float32),
        action_is_pad=np.zeros((count, 4), dtype=bool),
    )


def recorded_order(learner: Any, *, frames: int, batch_size: int, epoch: int, done: int) -> list[list[int]]:
    """The batches of a loader without a seed."""
    loader = learner.policy.build_loader(numbered_frames(frames), batch_size)
    return [batch["state"][:, 0].long().tolist() for batch in learner.policy.epoch_of(loader, epoch, done)]


def trained(learner: Any, *, frames: int, batch_size: int, epochs: int, seed: int, start: int) -> dict[str, Any]:
    """The losses of one process that trains on demonstrations from step `start` on, and the weights at the end."""
    policy = learner.policy.build_policy(seed)
    optimizer = torch.optim.AdamW(policy.parameters(), betas=(0.9, 0.95), weight_decay=0.01)
    loader = learner.policy.build_loader(demonstrations(frames, seed), batch_size, seed=seed)
    losses = learner.policy.train(policy, optimizer, loader, epochs=epochs, start=start)
    return {"losses": losses, "weights": _copy(policy)}


def fine_tuned(learner: Any, *, frames: int, batch_size: int, epochs: int, seed: int) -> dict[str, Any]:
    """The same for `fine_tune` as the only process, and how it `ended`."""
    return _processes(learner, 1, demonstrations(frames, seed), epochs=epochs, batch_size=batch_size, seed=seed)[0]


def examined(learner: Any, *, frames: int, seed: int) -> dict[str, Any]:
    """The losses of demonstrations that `frame_losses` gives, and whether they have a graph."""
    policy = learner.policy.build_policy(seed).train()
    modes: list[bool] = []
    policy.register_forward_pre_hook(lambda module, *_: modes.append(module.training))
    losses = learner.policy.frame_losses(policy, demonstrations(frames, seed))
    return {"losses": losses, "graph": losses.requires_grad, "training": [*modes, policy.training]}


def action(learner: Any, batch: Batch, seed: int) -> Tensor:
    """The chunk of a new policy in evaluation mode, (B, H, 3)."""
    return learner.policy.build_policy(seed).eval().predict(batch)


def parameters(learner: Any) -> dict[str, list[int]]:
    """The trained parameters of a new policy, and their shapes."""
    policy = learner.policy.build_policy(0)
    return {name: list(value.shape) for name, value in policy.named_parameters() if value.requires_grad}


def two_processes(learner: Any, *, seed: int) -> list[dict[str, Any]]:
    """Fine-tune in two processes; for each, how it `ended`, its `losses` and `weights`, and the loss of each frame."""
    return _processes(learner, 2, demonstrations(FRAMES, seed), epochs=EPOCHS, batch_size=BATCH_SIZE, seed=seed)


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a policy, and a loader of the first of two processes that leaves out no frame."""
    frames = demonstrations(8 * BATCH_SIZE, seed=83)
    policy = learner.policy.build_policy(0)
    return {
        "model": policy,
        "batch": collate(frames, range(BATCH_SIZE)),
        "optimizer": torch.optim.AdamW(policy.parameters(), lr=1e-3),
        "dataloader": learner.policy.build_loader(frames, BATCH_SIZE, rank=0, world_size=2, seed=83),
    }


def symptom(learner: Any) -> None:
    """Train in two processes, and print what was learnt: what `lab run 83` shows."""
    print(f"Fine-tuning in two processes on {FRAMES} frames: {EPOCHS} epochs, batches of {BATCH_SIZE}\n", flush=True)
    ranks = two_processes(learner, seed=83)
    for rank, result in enumerate(ranks):
        if result["ended"] != "finished":
            print(f"  process {rank} {result['ended']}")
            return
    losses = torch.tensor([rank["losses"] for rank in ranks]).mean(dim=0).view(EPOCHS, -1).mean(dim=1)
    print("  epochs       loss of the batches")
    for first in range(0, EPOCHS, SHOWN):
        print(f"  {first:2d} to {first + SHOWN - 1:2d}     {losses[first : first + SHOWN].mean():5.2f}")
    before = learner.policy.frame_losses(learner.policy.build_policy(83), demonstrations(FRAMES, 83))
    after, order = ranks[0]["frame_losses"].sort()
    learnt = FRAMES - LEFT_OUT
    print("\n  frames       loss before  loss after")
    for said, chosen in ((f"the best {learnt}", slice(None, learnt)), (f"the worst {LEFT_OUT}", slice(learnt, None))):
        print(f"  {said:11}  {before[order[chosen]].mean():11.2f}  {after[chosen].mean():10.2f}")


def _draw_other_numbers(noise: int) -> None:
    random.seed(noise)
    np.random.seed(noise)
    torch.manual_seed(noise)


def _copy(policy: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in policy.named_parameters()}


def _processes(learner: Any, world_size: int, frames: Frames, **asked: int) -> list[dict[str, Any]]:
    """Fork processes that fine-tune together. What they start, such as the threads of gloo, ends with them."""
    with tempfile.TemporaryDirectory() as folder:
        notes = [Path(folder) / f"rank{rank}" for rank in range(world_size)]
        sys.stdout.flush()
        gc.collect()
        running: dict[int, int] = {}
        died: set[int] = set()
        try:
            for rank, note in enumerate(notes):
                child = os.fork()
                if child == 0:
                    _be_a_rank(learner, frames, rank, world_size, f"file://{folder}/meeting", note, asked)
                running[rank] = child
            began = time.monotonic()
            while not all(note.exists() or rank in died for rank, note in enumerate(notes)):
                died |= {
                    rank for rank, child in running.items() if rank not in died and os.waitpid(child, os.WNOHANG)[0]
                }
                if time.monotonic() - began > LONGEST_S:
                    break
                time.sleep(0.05)
        finally:
            for rank, child in running.items():
                if rank not in died:
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
        nothing = {"losses": [], "weights": {}, "frame_losses": torch.zeros(0)}
        return [
            torch.load(note) if note.exists() else {"ended": "aborted" if rank in died else "still waits", **nothing}
            for rank, note in enumerate(notes)
        ]


def _keep_each_group() -> None:
    """Keep a reference to each group of processes until this one is killed.

    DistributedDataParallel can hold the last one. It is then destroyed while the lock of the interpreter is held, which
    waits for the threads of gloo. These can wait for the lock, so that now and then a process never returns.
    """
    init = dist.init_process_group

    def init_and_keep(*given: Any, **named: Any) -> None:
        init(*given, **named)
        _GROUPS.append(dist.group.WORLD)

    dist.init_process_group = init_and_keep


_GROUPS: list[Any] = []


def _be_a_rank(
    learner: Any, frames: Frames, rank: int, world_size: int, address: str, note: Path, asked: dict[str, int]
) -> None:
    """Train, write the result, and stay alive: a process that ends breaks the connections of the others."""
    gc.freeze()
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = LOOPBACK
    _draw_other_numbers(rank)
    _keep_each_group()
    told: dict[str, Any] = {"ended": "finished", "losses": [], "weights": {}, "frame_losses": torch.zeros(0)}
    try:
        policy, told["losses"] = learner.policy.fine_tune(frames, rank, world_size, address, **asked)
        told["weights"] = _copy(policy)
        told["frame_losses"] = learner.policy.frame_losses(policy, frames)
    except Exception as error:
        told["ended"] = f"raised {type(error).__name__}: {str(error).splitlines()[0][:110] if str(error) else ''}"
    torch.save(told, note.with_suffix(".part"))
    note.with_suffix(".part").rename(note)
    time.sleep(2 * LONGEST_S)
    os._exit(0)
