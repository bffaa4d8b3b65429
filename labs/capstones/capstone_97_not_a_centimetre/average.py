"""The moving average of a model's weights during training: what is evaluated, and what goes to the robot.

    average = decay * average + (1 - decay) * weight        after every update

Notable choices
- The average starts as a copy of the weights at the beginning. With `warm_up`, the decay of update t is at most
  (1 + t) / (10 + t), so that the beginning has no share in the average of a run of a hundred updates or more.
- Only what is trained is averaged: a frozen weight is its own average.
- The average is detached, and updating it never changes the model.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class WeightAverage:
    """The averaged weights of a model, by name."""

    def __init__(self, model: nn.Module, decay: float, warm_up: bool = True) -> None:
        self.decay = decay
        self.warm_up = warm_up
        self.updates = 0
        self.weights: dict[str, Tensor] = {
            name: parameter.detach().clone() for name, parameter in model.named_parameters()
        }

    def decay_now(self) -> float:
        """The decay of the next update."""
        return min(self.decay, (1 + self.updates) / (10 + self.updates)) if self.warm_up else self.decay

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Move the average towards the model's weights."""
        decay = self.decay_now()
        self.updates += 1
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and name in self.weights:
                self.weights[name].lerp_(parameter, 1 - decay)

    def state(self) -> dict[str, Tensor]:
        """A copy of the averaged weights, for a checkpoint."""
        return {name: weight.clone() for name, weight in self.weights.items()}
