"""What the grader and `lab run` measure. Runs with the learner's code, in the sandboxed child.

Which frames a process trains on is read from the batches that its model gets. For that the processes run one after the
other, each with random states of its own, as if it had drawn other numbers before. The processes of `fine_tune` are
real ones, which are ended as soon as all of them wait (`labs.processes`).
"""

from __future__ import annotations

import inspect
import linecache
import mmap
import random
import time
import warnings
from itertools import zip_longest
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from labs.policy_comparison import with_louder_head
from labs.processes import Line, Report, in_processes
from labs.vla.dataset import Batch, Frames, collate, demonstrations
from labs.vla.policy import Policy, PolicyOutput

FRAMES, BATCH_SIZE, EPOCHS = 30, 4, 60
SHOWN, LEFT_OUT = 20, 6
ADDRESS = "tcp://127.0.0.1:29500"
"""What `fine_tune` gets as the address; nothing listens there."""


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
                model = Recorder().eval()
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


def recorded_order(learner: Any, *, frames: int, batch_size: int, epoch: int, done: int) -> dict[str, Any]:
    """The `batches` of a loader without a seed, and their number as the loader tells it."""
    loader = learner.policy.build_loader(numbered_frames(frames), batch_size)
    rest = learner.policy.epoch_of(loader, epoch, done)
    return {"number": len(rest), "batches": [batch["state"][:, 0].long().tolist() for batch in rest]}


def trained(
    learner: Any, *, frames: int, batch_size: int, epochs: int, seed: int, start: int, louder: float
) -> dict[str, Any]:
    """The losses of one process that trains on demonstrations from step `start` on, and the weights at the end.

    `norms` are those of each parameter's gradient before each step. `louder` multiplies the head's weights before.
    """
    policy = with_louder_head(learner.policy.build_policy(seed), louder)
    optimizer = torch.optim.AdamW(policy.parameters(), betas=(0.9, 0.95), weight_decay=0.01)
    norms: list[dict[str, float]] = []

    def note(*_: Any) -> None:
        norms.append({name: float(p.grad.norm()) for name, p in policy.named_parameters() if p.grad is not None})

    optimizer.register_step_pre_hook(note)
    loader = learner.policy.build_loader(demonstrations(frames, seed), batch_size, seed=seed)
    losses = learner.policy.train(policy, optimizer, loader, epochs=epochs, start=start)
    return {"losses": losses, "weights": _copy(policy), "norms": norms}


def fine_tuned(learner: Any, *, frames: int, batch_size: int, epochs: int, seed: int) -> dict[str, Any]:
    """The same for `fine_tune` as the only process, and how it `ended`."""
    return _processes(learner, 1, demonstrations(frames, seed), epochs=epochs, batch_size=batch_size, seed=seed)[0]


def examined(learner: Any, *, frames: int, seed: int, louder: float) -> dict[str, Any]:
    """The losses of demonstrations that `frame_losses` gives, and whether they have a graph.

    `louder` multiplies the head's weights before.
    """
    policy = with_louder_head(learner.policy.build_policy(seed), louder)
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


def uneven_rounds(
    learner: Any, *, frames: int, batch_size: int, world_size: int, epochs: int, seed: int
) -> list[dict[str, Any]]:
    """Fine-tune in real processes; for each, how it `ended`, the `steps` it took, and where it `waits`.

    Of one that finished also the frames in each batch of its policy, `batches`, and how it `joined` the others.
    """
    ranks = _processes(
        learner, world_size, demonstrations(frames, seed), epochs=epochs, batch_size=batch_size, seed=seed
    )
    return [{name: rank[name] for name in ("ended", "steps", "waits", "batches", "joined")} for rank in ranks]


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
    if any(result["ended"] != "finished" for result in ranks):
        for rank, result in enumerate(ranks):
            waits = f", in `{result['waits']}`" if result["waits"] else ""
            print(f"  process {rank} {result['ended']} after {result['steps']} steps{waits}")
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
    """Fine-tune in `world_size` real processes. For each, how it `ended`, the `steps` it took, and where it `waits`.

    They are processes of one group when the learner's code begins, so what it calls to join is without an effect, and
    only noted: the arguments are `joined`.
    """
    steps = memoryview(mmap.mmap(-1, 8 * world_size)).cast("q")
    everything = collate(frames, range(len(frames)))

    def work(rank: int, report: Report) -> None:
        _draw_other_numbers(rank)
        group = dist.group.WORLD  # kept: to destroy it can wait forever for the threads of gloo
        told: dict[str, Any] = {"joined": {}, "batches": []}
        takes, forward = inspect.signature(dist.init_process_group), Policy.forward

        def join(*args: Any, **kwargs: Any) -> Any:
            given = takes.bind(*args, **kwargs).arguments
            told["joined"] = {name: given.get(name) for name in ("init_method", "rank", "world_size")}
            return group

        def noted(self: Policy, *args: Any, **batch: Any) -> Any:
            told["batches"].append(_which(batch, everything))
            return forward(self, *args, **batch)

        def count(*_: Any) -> None:
            steps[rank] += 1

        for place in (vars(dist), vars(learner.policy)):
            if "init_process_group" in place:
                place["init_process_group"] = join
        register_optimizer_step_post_hook(count)
        with patch.object(Policy, "forward", noted):
            policy, losses = learner.policy.fine_tune(frames, rank, world_size, ADDRESS, **asked)
        told |= {"losses": losses, "weights": _copy(policy)}
        report({**told, "frame_losses": learner.policy.frame_losses(policy, frames)})

    with warnings.catch_warnings():
        # From Python 3.12 on, of a fork beside threads: torch's have nothing to do.
        warnings.simplefilter("ignore", DeprecationWarning)
        ranks = in_processes(work, world_size)
    nothing: dict[str, Any] = {
        "losses": [],
        "weights": {},
        "frame_losses": torch.zeros(0),
        "batches": [],
        "joined": {},
    }
    return [
        {"ended": one.how, "steps": steps[rank], "waits": _own_line(one.stack), **(one.results or [nothing])[0]}
        for rank, one in enumerate(ranks)
    ]


def _which(batch: Batch, everything: Batch) -> list[int]:
    """The numbers of a batch's frames, found by their states and actions."""
    rows, mine = (torch.cat([one["state"], one["action"].flatten(1)], dim=1) for one in (everything, batch))
    return (mine[:, None] - rows[None]).abs().amax(dim=-1).argmin(dim=1).tolist()


def _own_line(stack: list[Line]) -> str:
    """The innermost line of the learner's file."""
    own = [(file, number) for file, number, _ in stack if Path(file).name == "policy.py"]
    return linecache.getline(*own[-1]).strip() if own else ""


def read_in_turns(learner: Any, loaders: list[dict[str, Any]], epoch: list[int], done: list[int]) -> list[list[Any]]:
    """The batches that `epoch_of` gives of each loader; each of `loaders` has `build_loader`'s arguments.

    `epoch_of` is called for every loader before the first batch is read, and a batch is read of each in turn.
    """
    asked = []
    for shares, number, first in zip(loaders, epoch, done, strict=True):
        given = {name: value for name, value in shares.items() if name != "frames"}
        loader = learner.policy.build_loader(numbered_frames(shares["frames"]), **given)
        asked.append(learner.policy.epoch_of(loader, number, first))
    read: list[list[list[int]]] = [[] for _ in asked]
    for batches in zip_longest(*asked):
        for own, batch in zip(read, batches, strict=True):
            if batch is not None:
                own.append(batch["state"][:, 0].long().tolist())
    return read
