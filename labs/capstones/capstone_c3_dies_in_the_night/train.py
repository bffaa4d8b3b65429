"""The nightly fine-tuning job.

    python train.py [FOLDER]        starts the run in FOLDER, or continues it from its newest checkpoint

    step ── sampler.next_batch ── loss, update ── the batch's errors after the update ── sampler.record
      every `validate_every` steps: validate         every `save_every` steps: checkpoint

What the job relies on
- From the second step on, and whether or not a validation has run, the same tensors and autograd graphs are alive after
  every step: a run can have any number of steps on a node of any size.
- The cluster may end the job at any time, and starts it again on another node. That changes nothing in the result: see
  checkpoint.py.
- The frames of a batch are scored in evaluation mode, with the weights after the update.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml
from checkpoint import newest, resume, save
from data import ReplaySampler
from evaluate import Validation, validate
from model import NightlyPolicy, build_policy, evaluating
from torch import nn

from labs.vla.dataset import Batch, batches, collate, demonstrations
from labs.vla.randomness import private_randomness

CONFIG = Path(__file__).with_name("config.yaml")
HELD_OUT_SEED = 930_000
MAX_GRADIENT_NORM = 1.0
OnStep = Callable[[int, float], None]


@dataclass
class Run:
    """What one start of the job did: its policy, and by step (from 1) its losses and validations."""

    policy: NightlyPolicy
    resumed_at: int = 0
    """Steps that earlier starts of the job had done."""
    losses: dict[int, float] = field(default_factory=dict)
    validations: dict[int, Validation] = field(default_factory=dict)


def train(config: dict[str, Any], folder: Path, on_step: OnStep | None = None) -> Run:
    """Run the job in `folder` to its last step, from its newest checkpoint if it has one.

    `on_step(step, loss)` is called at the end of each step, after its validation and its checkpoint. The caller's
    random state does not change. Leaves the policy in evaluation mode.
    """
    with private_randomness(config["seed"]):
        return _train(config, folder, on_step)


def _train(config: dict[str, Any], folder: Path, on_step: OnStep | None) -> Run:
    frames = demonstrations(config["frames"], seed=config["seed"])
    held_out = held_out_batches(config["held_out"], config["batch_size"])
    policy = build_policy(config["seed"], config["dropout"])
    optimizer = torch.optim.AdamW(policy.parameters(), lr=config["learning_rate"])
    sampler = ReplaySampler(config["frames"], config["batch_size"], config["replayed"], config["seed"])
    run = Run(policy)
    path = newest(folder)
    if path is not None:
        run.resumed_at = resume(path, policy=policy, optimizer=optimizer, sampler=sampler)
    policy.train()
    for step in range(run.resumed_at + 1, config["steps"] + 1):
        for group in optimizer.param_groups:
            group["lr"] = config["learning_rate"] * min(1.0, step / config["warm_up"])
        indices = sampler.next_batch()
        batch = collate(frames, indices.numpy())
        run.losses[step] = update(policy, optimizer, batch)
        with evaluating(policy):
            sampler.record(indices, policy.frame_errors(batch))
        if step % config["validate_every"] == 0:
            run.validations[step] = validate(policy, held_out, config["watched"])
        if step % config["save_every"] == 0:
            save(folder, step, policy=policy, optimizer=optimizer, sampler=sampler)
        if on_step is not None:
            on_step(step, run.losses[step])
    policy.eval()
    return run


def update(policy: NightlyPolicy, optimizer: torch.optim.Optimizer, batch: Batch) -> float:
    """One update on a batch, with clipped gradients; returns the loss before it."""
    optimizer.zero_grad()
    loss = policy(**batch).loss
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRADIENT_NORM)
    optimizer.step()
    return loss.item()


def held_out_batches(count: int, batch_size: int) -> list[Batch]:
    """Frames on which no run trains, the same for every run."""
    frames = demonstrations(count, seed=HELD_OUT_SEED)
    return list(batches(frames, batch_size, steps=count // batch_size, seed=HELD_OUT_SEED))


def main(folder: Path) -> None:
    """Run the job of config.yaml, and print its log."""
    config = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    run = train(config, folder, lambda step, loss: print(f"step {step:4d}   loss {loss:.4f}", flush=True))
    for step, validation in run.validations.items():
        print(f"validation after step {step}: loss {validation.loss:.4f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("outputs"))
