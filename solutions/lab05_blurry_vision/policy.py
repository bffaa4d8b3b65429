"""A policy that reads the camera at several scales: a pyramid of patches between the vision tower and the projector.

    patches (B, P, V) ─┬─ detail ─────────────────────────────────────────────┐
                       └─ down ── down ── middle ── up ── + ── up ── + ── (B, P, V)
                             └──── across ──────────────┘              └─ the detail joins at full resolution

On the way down the grid is halved twice, so that one cell covers distant patches. On the way up each level adds a skip
from the grid of its size on the way down. The last level's skip has a separate path, from the patches themselves.

Notable choices
- The pyramid comes before a pretrained projector, so it starts close to the identity: the detail path is an identity,
  and the way up starts small. The pretrained features are there from the first step.
- Grids need not be square or a power of two: a level is resized to the size of the one it is added to.
- Every level is normalised before it is mixed, so that depth does not change its scale.
- A checkpoint holds the five parts of the pyramid under their names: `detail`, `down`, `across`, `middle` and `up`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labs.vla.policy import Policy, PolicyConfig

LEVELS = 2
SMALL = 0.1
"""Scale at which the way up starts."""


class Level(nn.Module):
    """Mixes the channels of a grid (B, V, h, w), and each cell with its neighbours."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(1, width)
        self.neighbours = nn.Conv2d(width, width, kernel_size=3, padding=1, groups=width)
        self.channels = nn.Conv2d(width, width, kernel_size=1)

    def forward(self, grid: Tensor) -> Tensor:
        """The mixed grid, same shape."""
        return self.channels(F.gelu(self.neighbours(self.norm(grid))))


class PatchPyramid(nn.Module):
    """Maps patches (B, P, V) on a grid of height x width to patches of the same shape with context from around them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.detail = nn.Conv2d(width, width, kernel_size=1)
        self.down = nn.ModuleList(Level(width) for _ in range(LEVELS))
        self.across = nn.ModuleList(nn.Conv2d(width, width, kernel_size=1) for _ in range(LEVELS - 1))
        self.middle = Level(width)
        self.up = nn.ModuleList(Level(width) for _ in range(LEVELS))
        self.start_close_to_identity()

    def start_close_to_identity(self) -> None:
        """Pass the input on, and add a small contribution of the coarse levels."""
        with torch.no_grad():
            nn.init.dirac_(self.detail.weight)
            nn.init.zeros_(self.detail.bias)
            for level in self.up:
                level.channels.weight.mul_(SMALL)
                nn.init.zeros_(level.channels.bias)

    def forward(self, patches: Tensor, size: tuple[int, int]) -> Tensor:
        """Patches (B, P, V) of a grid of `size` (height, width), to the same shape."""
        grid = patches.transpose(1, 2).unflatten(2, size)  # (B, V, h, w)
        detail = self.detail(grid)  # (B, V, h, w)
        grid, skips = self.descend(grid)
        grid = self.middle(grid)
        for level, (mix, skip_size) in enumerate(zip(self.up, self.sizes_upwards(size), strict=True)):
            grid = F.interpolate(grid, size=skip_size, mode="nearest")
            grid = grid + mix(grid)
            if level < len(skips):
                grid = grid + skips[-1 - level]
            if level == len(self.up) - 1:
                grid = grid + detail
        return grid.flatten(2).transpose(1, 2)

    def descend(self, grid: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Halve the grid twice. Returns the coarsest grid and the skips of the levels between, finest first."""
        skips = []
        for level, mix in enumerate(self.down):
            grid = F.avg_pool2d(grid + mix(grid), kernel_size=2, ceil_mode=True)
            if level < len(self.across):
                skips.append(self.across[level](grid))
        return grid, skips

    @staticmethod
    def sizes_upwards(size: tuple[int, int]) -> list[tuple[int, int]]:
        """The grid sizes of the way up, coarsest first; the last is `size` itself."""
        sizes = [size]
        for _ in range(LEVELS - 1):
            height, width = sizes[0]
            sizes.insert(0, (-(-height // 2), -(-width // 2)))
        return sizes


class PyramidPolicy(Policy):
    """The base policy with a pyramid before the projector; `policy(**batch).loss` is the training loss."""

    def __init__(self, config: PolicyConfig | None = None) -> None:
        super().__init__(config)
        self.pyramid = PatchPyramid(self.config.vision_width)

    def embed_images(self, pixel_values: Tensor) -> Tensor:
        """Patches as the language model reads them: (B, 3, H, W) to (B, P, D)."""
        patches = self.vision(pixel_values=pixel_values).last_hidden_state  # (B, P, V)
        size = tuple(side // self.config.patch_size for side in pixel_values.shape[-2:])
        return self.projector(self.pyramid(patches, size))


def build_policy(seed: int) -> PyramidPolicy:
    """The pretrained base with a fresh pyramid and action head, drawn from `seed`."""
    return PyramidPolicy.from_base(seed=seed)
