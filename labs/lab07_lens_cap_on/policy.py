"""A policy for cameras of any shape: the image is cut into patches first, and the vision tower reads the patches.

    pixel_values (B, 3, H, W) ─ patchify ─ rows (B, P, 3·p·p) ─ patch embedding ─ (B, P, V) ─┐
    position table (S·S, V) ─── resized to the grid of the image ───────────────── (P, V) ── + ─ encoder ─ projector

SigLIP's own forward convolves an image of the one size for which it was built. SigLIP 2 and Qwen2-VL cut the image
into patches instead, each a row of numbers, and embed all rows by one matrix product. This policy does the same with
the pretrained SigLIP tower, so that the next camera may have another resolution.

Notable choices
- The checkpoint is the base's, with all its names: the weight of the patch embedding is still a convolution's,
  (V, 3, p, p), and is read as a matrix.
- The position table was pretrained on a square grid of S x S patches. For another grid it is resized bilinearly; on its
  own grid it is used as it is.
- An image need not be square, but it must consist of whole patches.
- The projector and the language model take any number of patches.
- A gradient reaches every pixel, for maps of what the policy looks at.
"""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor

from labs.vla.policy import Policy


def patchify(images: Tensor, size: int) -> Tensor:
    """Cut images (B, C, H, W) into patches of `size` x `size` pixels, one row each: (B, P, C·size·size).

    Rows are in reading order: the patches of the top of the image from left to right, then those below. A row holds
    all of its patch and nothing else: each channel in turn, and within a channel its pixels in reading order, in the
    images' dtype. Raises ValueError for an image that does not consist of whole patches.
    """
    channels, *sides = images.shape[1:]
    if any(side % size for side in sides):
        raise ValueError(
            f"An image of {sides[0]} x {sides[1]} pixels does not consist of whole patches of {size} x {size}. "
            "Crop it or resize it first."
        )
    windows = images.unfold(2, size, size).unfold(3, size, size)
    return windows.reshape(len(images), -1, channels * size * size)


def resized_positions(table: Tensor, grid: tuple[int, int]) -> Tensor:
    """The position table (S·S, V) for a grid of (rows, columns), in reading order: (rows·columns, V)."""
    side = math.isqrt(len(table))
    square = table.reshape(1, side, side, -1).permute(0, 3, 1, 2)
    return F.interpolate(square, size=grid, mode="bilinear").flatten(2).transpose(1, 2)[0]


class AnyShapePolicy(Policy):
    """The base policy for images (B, 3, H, W) of any whole number of patches; its parameters are the base's."""

    def embed_images(self, pixel_values: Tensor) -> Tensor:
        """Patches as the language model reads them: (B, 3, H, W) to (B, P, D)."""
        embedding = self.vision.embeddings.patch_embedding
        table = self.vision.embeddings.position_embedding.weight
        size = self.config.patch_size
        grid = (pixel_values.shape[2] // size, pixel_values.shape[3] // size)
        rows = patchify(pixel_values, size)  # (B, P, 3·p·p)
        embedded = F.linear(rows, embedding.weight.flatten(1), embedding.bias)  # (B, P, V)
        seen = self.vision.encoder(inputs_embeds=embedded + resized_positions(table, grid)).last_hidden_state
        return self.projector(self.vision.post_layernorm(seen))


def build_policy(seed: int) -> AnyShapePolicy:
    """The pretrained base with a fresh action head, drawn from `seed`."""
    return AnyShapePolicy.from_base(seed=seed)
