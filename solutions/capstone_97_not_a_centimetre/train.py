"""Trains the policy of `config.yaml`, and writes one checkpoint.

    python train.py

The checkpoint has three entries: `config`, `model`, the policy's whole state at the end of the run, with which training
goes on, and `average`, the averaged weights, with which the robot moves.

Notable choices
- The averaged weights are updated once after every update of the model.
- The held-out loss is that of the policy that is being trained, in evaluation mode and without gradients. The training
  goes on in training mode.
- The same configuration gives the same checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml
from average import WeightAverage
from data import held_out_frames, statistics, training_frames
from model import build, wrapped

from labs.vla.dataset import Frames, batches, collate
from labs.vla.policy import Policy
from labs.vla.randomness import private_randomness
from labs.vla.training import MAX_GRADIENT_NORM, learning_rate_at

CHECKPOINT = Path("checkpoint.pt")
OnLog = Callable[[int, float, float], None]


def train(config: dict, on_log: OnLog | None = None) -> dict[str, Any]:
    """Train, and return the checkpoint. `on_log(step, loss, held_out_loss)` is called every `log_every` steps."""
    settings = config["train"]
    frames, held_out = training_frames(config), held_out_frames(config)
    policy = build(config, statistics(frames))
    average = WeightAverage(policy, **config["average"])
    model = wrapped(config, policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings["learning_rate"], betas=(0.9, 0.95))
    with private_randomness(config["seed"]):
        stream = batches(frames, settings["batch_size"], settings["steps"], config["seed"])
        for step, batch in enumerate(stream, start=1):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate_at(step - 1, settings["steps"], settings["learning_rate"])
            model.train()
            loss = model(**batch).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
            optimizer.step()
            average.update(policy)
            if on_log is not None and step % settings["log_every"] == 0:
                on_log(step, loss.item(), held_out_loss(policy, held_out))
    return {"config": config, "model": policy.state_dict(), "average": average.state()}


@torch.no_grad()
def held_out_loss(policy: Policy, frames: Frames) -> float:
    """The loss on held-out frames, in evaluation mode."""
    policy.eval()
    return policy(**collate(frames, range(len(frames)))).loss.item()


def main() -> None:
    """One run with `config.yaml`."""
    config = yaml.safe_load(Path(__file__).with_name("config.yaml").read_text(encoding="utf-8"))
    print(" step     loss   held-out loss")
    checkpoint = train(config, lambda step, loss, held_out: print(f"{step:5d} {loss:8.3f} {held_out:15.3f}"))
    torch.save(checkpoint, CHECKPOINT)
    print(f"saved {CHECKPOINT}: {', '.join(checkpoint)}")


if __name__ == "__main__":
    main()
