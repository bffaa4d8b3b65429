"""A policy that adds to each patch a code of the place on the table that it shows.

The language model numbers its tokens in one sequence, so for it a patch and the patch above are four positions apart.
Here each patch gets a code of its place on the table before the language model reads it:

    pixel_values (B, 3, 64, 64) ── tower, projector ── (B, P, D) ── turn upright ── + gain * code of the place

Notable choices
- Codes are random Fourier features (arXiv:2006.10739): sines and cosines of the place at random frequencies, so nearby
  places have similar codes and distant ones do not. Frequencies are drawn once, with the policy, and never train: the
  language model learns to read exactly these codes. Loading a checkpoint without them is an error. Only their gain
  trains, one number for each channel.
- The camera may be mounted rotated by quarter turns. Patches are first reordered to the table's orientation, so that a
  code belongs to a place on the table and not to a position on the sensor. The mounting is the robot's own: a policy
  that loads a checkpoint keeps the order that its constructor computed.
- The gripper hides what is below it. Patches near it get a mark that fades with distance, computed in each forward.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from labs.vla.policy import Policy, PolicyConfig

BANDWIDTH = 0.5
"""Standard deviation of the frequencies, in periods across the table."""
REACH = 0.15
"""Distance in metres over which the gripper's mark fades."""


class PlaceCode(nn.Module):
    """Adds to each patch (B, P, D) the code of the place on the table that it shows.

    Codes are multiplied by `gain`, at first 0.5, and `mark`, at first zero, is added near the gripper.
    """

    def __init__(self, side: int, width: int, quarter_turns: int = 0) -> None:
        super().__init__()
        self.side = side
        self.gain = nn.Parameter(torch.full((width,), 0.5))
        self.mark = nn.Parameter(torch.zeros(width))
        self.register_buffer("order", upright_order(side, quarter_turns), persistent=False)
        frequencies = BANDWIDTH * torch.randn(2, width // 2)
        self.table = fourier_features(patch_centres(side), frequencies)  # (P, D)

    def forward(self, patches: Tensor, arm: Tensor) -> Tensor:
        """Patches (B, P, D) in the sensor's order, arm at (B, 2) in metres, to coded patches in the table's order."""
        upright = patches[:, self.order]
        return upright + self.gain * self.table + self.mark * self.nearness(arm)

    def nearness(self, arm: Tensor) -> Tensor:
        """How near each patch is to the arm, 1 below it and 0 far away: (B, 2) to (B, P, 1)."""
        places = patch_centres(self.side).to(arm)  # (P, 2)
        return torch.exp(-((places - arm[:, None]) / REACH).square().sum(dim=-1, keepdim=True))


class PlacedPolicy(Policy):
    """The base policy with place codes on its patches; `policy(**batch).loss` is the training loss."""

    def __init__(self, config: PolicyConfig | None = None) -> None:
        super().__init__(config)
        self.places = PlaceCode(self.config.image_size // self.config.patch_size, self.config.width)

    def embed_prefix(
        self, pixel_values: Tensor, input_ids: Tensor, attention_mask: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """One sequence of coded patches, instruction and state: embeddings (B, P+L+1, D) and their mask (B, P+L+1)."""
        patches = self.places(self.embed_images(pixel_values), state[:, :2])  # (B, P, D)
        return self.join_prefix(patches, input_ids, attention_mask, state)


def patch_centres(side: int) -> Tensor:
    """The centre of each patch on a table one metre wide, row by row: (P, 2)."""
    line = (torch.arange(side) + 0.5) / side
    y, x = torch.meshgrid(line, line, indexing="ij")
    return torch.stack([x, y], dim=-1).flatten(0, 1)


def fourier_features(places: Tensor, frequencies: Tensor) -> Tensor:
    """Sines and cosines of places (P, 2) at frequencies (2, F): (P, 2F), of unit variance."""
    phase = 2 * math.pi * places @ frequencies  # (P, F)
    return math.sqrt(2) * torch.cat([phase.sin(), phase.cos()], dim=-1)


def upright_order(side: int, quarter_turns: int) -> Tensor:
    """The index on the sensor of each of the table's patches, for a camera rotated by quarter turns: (P,)."""
    return torch.arange(side * side).view(side, side).rot90(quarter_turns).flatten()


def build_policy(seed: int) -> PlacedPolicy:
    """The pretrained base, with place codes and an action head drawn from `seed`."""
    return PlacedPolicy.from_base(seed=seed)
