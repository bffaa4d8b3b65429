"""The policy, and the units of its actions."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn

from labs.vla.dataset import Frames
from labs.vla.policy import Policy, PolicyConfig


class ActionScale(nn.Module):
    """Metres to the numbers that the head learns, and back. `unnormalize` is the inverse of `normalize`.

    `mean` and `spread`, the variance, are of each action dimension.
    """

    mean: Tensor
    spread: Tensor

    def __init__(self, mean: Tensor, spread: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("spread", spread)

    @classmethod
    def of(cls, action: Tensor, is_pad: Tensor) -> Self:
        """The scale of actions (N, H, A), without padded steps (N, H)."""
        rows = action[~is_pad].double()
        constant = (rows.var(dim=0) == 0).nonzero().flatten().tolist()
        if constant:
            raise ValueError(f"The action dimensions {constant} never move, so they have no scale.")
        return cls(rows.mean(dim=0).float(), rows.var(dim=0).float())

    def normalize(self, action: Tensor) -> Tensor:
        """Metres to numbers of mean 0 and standard deviation 1, (..., A)."""
        return torch.mul(action - self.mean, self.spread.rsqrt())

    def unnormalize(self, action: Tensor) -> Tensor:
        """The inverse of `normalize`, (..., A)."""
        return torch.addcmul(self.mean, action, self.spread)

    def extra_repr(self) -> str:
        """The numbers, for `print(policy)`."""
        mean, spread = ([round(one, 4) for one in numbers.tolist()] for numbers in (self.mean, self.spread))
        return f"mean={mean}, spread={spread}"


def build_policy(seed: int, frames: Frames) -> Policy:
    """The pretrained base with a new head, and the scale of these frames' actions."""
    policy = Policy.from_base(PolicyConfig(horizon=frames.action.shape[1]), seed=seed)
    policy.action_statistics = ActionScale.of(torch.from_numpy(frames.action), torch.from_numpy(frames.action_is_pad))
    return policy
