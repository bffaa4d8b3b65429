"""From pixels to features: SigLIP's vision tower, and the projector to the language model's width."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from transformers import SiglipVisionConfig, SiglipVisionModel

if TYPE_CHECKING:
    from labs.vla.policy import PolicyConfig

PIXEL_MEAN = 0.77
PIXEL_STD = 0.11
"""Mean and standard deviation of the tabletop's pixels in [0, 1]. With 0.5 and 0.5, the usual choice, the table itself
is far from zero, and the same training did not make progress."""


def normalize_pixels(image: Tensor) -> Tensor:
    """Turn camera images uint8 (B, H, W, 3) into `pixel_values` float32 (B, 3, H, W)."""
    if image.dtype != torch.uint8 or image.shape[-1] != 3:
        raise ValueError(
            f"normalize_pixels takes uint8 images (B, H, W, 3), as the camera gives them, not {image.dtype} of shape "
            f"{tuple(image.shape)}. An image normalised twice looks like this."
        )
    return (image.permute(0, 3, 1, 2).float() / 255 - PIXEL_MEAN) / PIXEL_STD


def build_vision_tower(config: PolicyConfig) -> SiglipVisionModel:
    """Build SigLIP's vision tower without its pooling head: one feature per patch, (B, P, V)."""
    tower = SiglipVisionModel(
        SiglipVisionConfig(
            hidden_size=config.vision_width,
            intermediate_size=config.vision_mlp_width,
            num_hidden_layers=config.vision_layers,
            num_attention_heads=config.vision_heads,
            image_size=config.image_size,
            patch_size=config.patch_size,
            vision_use_head=False,
        )
    )
    _start_positions_on_a_grid(tower, config.image_size // config.patch_size)
    return tower


class Projector(nn.Sequential):
    """Two layers from the vision tower's width to the language model's: (B, P, V) to (B, P, D)."""

    def __init__(self, vision_width: int, width: int) -> None:
        super().__init__(nn.Linear(vision_width, width), nn.GELU(), nn.Linear(width, width))


def _start_positions_on_a_grid(tower: SiglipVisionModel, side: int) -> None:
    """Initialise the position embeddings as a random map of each patch's position; training starts from there.

    From pure noise, the model would first have to learn from the data which patches are neighbours.
    """
    y, x = torch.meshgrid(torch.linspace(-1, 1, side), torch.linspace(-1, 1, side), indexing="ij")
    waves = [f(math.pi * k * axis / 2) for k in (1, 2, 3) for axis in (x, y) for f in (torch.sin, torch.cos)]
    where = torch.stack([x, y, *waves], dim=-1).flatten(0, 1)  # (P, 14)
    embedding = next(module for name, module in tower.named_modules() if name.endswith("position_embedding"))
    random_map = torch.randn(where.shape[-1], embedding.weight.shape[-1]) / where.shape[-1] ** 0.5
    with torch.no_grad():
        embedding.weight.copy_(where @ random_map)
