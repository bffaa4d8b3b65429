"""What is observed of a submission: the round trip of random actions."""

from __future__ import annotations

from typing import Any

import torch


def round_trip(learner: Any, *, seed: int) -> dict[str, Any]:
    """The actions that went in and those that came back."""
    generator = torch.Generator().manual_seed(seed)
    action = torch.randn(16, 3, generator=generator)
    mean, std = torch.randn(3, generator=generator), torch.rand(3, generator=generator) + 0.5
    policy = learner.policy
    return {"mean": mean, "before": action, "after": policy.unnormalise(policy.normalise(action, mean, std), mean, std)}


def symptom(learner: Any) -> None:
    """One action there and back."""
    there = round_trip(learner, seed=0)
    print("action     ", [round(value, 3) for value in there["before"][0].tolist()])  # noqa: T201
    print("there, back", [round(value, 3) for value in there["after"][0].tolist()])  # noqa: T201


def subject(learner: Any) -> dict[str, Any]:
    """A healthy little model round the learner's function: debugkit has nothing to find in it."""

    class Arm(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(4, 3)

        def forward(self, state: torch.Tensor, action: torch.Tensor) -> dict[str, torch.Tensor]:
            scaled = self.head(state)
            moved = learner.policy.unnormalise(scaled, scaled.new_zeros(3), scaled.new_ones(3))
            return {"loss": (moved - action).square().mean()}

    torch.manual_seed(0)
    return {"model": Arm(), "batch": {"state": torch.randn(8, 4), "action": torch.randn(8, 3)}}
