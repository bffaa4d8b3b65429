"""Trains one policy for all arms of the cell.

    python train.py

Notable choices
- Behaviour cloning from the pretrained base: AdamW, clipped gradients, warm-up and cosine.
- The same configuration gives the same policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import yaml
from data import batches
from torch import nn

from labs.vla.policy import Policy
from labs.vla.randomness import private_randomness
from labs.vla.training import MAX_GRADIENT_NORM, learning_rate_at

CONFIG = Path(__file__).with_name("config.yaml")
Log = Callable[[str], None]


def run(config: Mapping[str, Any], log: Log = print) -> Policy:
    """A whole run. Leaves the policy in evaluation mode; the caller's random state does not change."""
    settings = config["train"]
    policy = Policy.from_base(seed=config["seed"])
    optimizer = torch.optim.AdamW(policy.parameters(), lr=settings["learning_rate"], weight_decay=0.01)
    recent: list[float] = []
    with private_randomness(config["seed"]):
        policy.train()
        for step, batch in enumerate(batches(config)):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate_at(step, settings["steps"], settings["learning_rate"])
            loss = policy(**batch).loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRADIENT_NORM)
            optimizer.step()
            recent.append(loss.item())
            if (step + 1) % settings["log_every"] == 0:
                log(f"step {step + 1:4d}   loss {sum(recent) / len(recent):.4f}")
                recent.clear()
    return policy.eval()


def read_config(path: Path = CONFIG) -> dict[str, Any]:
    """The settings of a run."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    from evaluate import episodes, report

    config = read_config()
    print(*report(episodes(run(config), config), config), sep="\n")
