"""Runs the averaged policy of a checkpoint in closed loop.

    python evaluate.py

Notable choices
- The checkpoint is all that is read: a robot has no training data.
- The policy acts with the averaged weights. A weight that has no average comes from nowhere else, so a checkpoint
  without it is refused.
- The environment's actions are in metres, the policy's are in the controller's units.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from data import scaled
from model import build
from torch import Tensor

from labs.vla.dataset import Batch
from labs.vla.policy import Policy
from labs.vla.rollout import Rollout, rollout

CHECKPOINT = Path("checkpoint.pt")


def load(checkpoint: dict[str, Any]) -> Policy:
    """The policy that goes to the robot, in evaluation mode. Raises KeyError if a weight has no average."""
    policy = build(checkpoint["config"])
    missing, unexpected = policy.load_state_dict(checkpoint["average"], strict=False)
    absent = [name for name, _ in policy.named_parameters() if name in missing]
    if absent or unexpected:
        raise KeyError(f"the averaged weights lack {absent} and have {unexpected} besides")
    return policy.eval()


def in_metres(policy: Policy, controller_units: float, batch: Batch) -> Tensor:
    """The chunk (B, H, A) that the environment executes."""
    chunk = policy.predict(batch).numpy()
    return torch.from_numpy(scaled(chunk, 1 / controller_units))


def evaluate(checkpoint: dict[str, Any], episodes: int | None = None, first_seed: int = 10_000) -> Rollout:
    """Closed-loop episodes of the averaged policy; by default as many as the configuration says."""
    config = checkpoint["config"]
    policy, settings = load(checkpoint), config["evaluation"]
    predict = partial(in_metres, policy, config["data"]["controller_units"])
    count = settings["episodes"] if episodes is None else episodes
    return rollout(policy, episodes=count, first_seed=first_seed, execute=settings["execute"], predict=predict)


def main() -> None:
    """Evaluate `checkpoint.pt`."""
    result = evaluate(torch.load(CHECKPOINT, weights_only=True))
    print(f"{result.success_rate:.0%} of {len(result.success)} episodes, {result.final_distance:.2f} m left (median)")


if __name__ == "__main__":
    main()
