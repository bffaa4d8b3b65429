"""A policy that standardises the vision tower's patches before they reach the language model.

An encoder that starts from scratch outputs features of any scale, but the language model was pretrained on one scale
only. So a small module between them keeps every channel at mean 0 and standard deviation 1, with running statistics:

    pixel_values (B, 3, 64, 64) ── vision tower ── (B, P, V) ── standardise ── (B, P, V) ── projector ── (B, P, D)

Notable choices
- The robot got a new camera. The tower's patch embedding is kept, and the encoder above it is initialised at random
  (`build_policy`): it has everything to learn, so it must be trained with the rest.
- Statistics run over batches with momentum 0.1, as in BatchNorm, and are buffers, so the checkpoint contains them. In
  evaluation they do not change, so an episode does not depend on what the camera saw before. They are constants for
  autograd: no gradient goes through them.
- Unlike in BatchNorm, training uses the running statistics too, so training and robot use the same transformation. The
  drawback is that early batches are off-scale; to limit that, the first batch sets the statistics directly.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from labs.vla.policy import Policy, PolicyConfig

MOMENTUM = 0.1
SMALLEST_STD = 1e-3
"""Lower bound of a channel's standard deviation: a dead channel must not be scaled up to unit variance."""


class RunningStandardise(nn.Module):
    """Standardises every channel of (B, P, V) to mean 0 and standard deviation 1, with running statistics."""

    mean: Tensor
    std: Tensor
    batches_seen: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("std", torch.ones(channels))
        self.register_buffer("batches_seen", torch.zeros((), dtype=torch.long))

    def forward(self, patches: Tensor) -> Tensor:
        """Standardised patches of the same shape; in training mode, the batch updates the statistics first."""
        observed = patches.detach()  # (B, P, V)
        if self.training:
            self.update(observed)
        return (patches - self.mean) / self.std.clamp(min=SMALLEST_STD)

    @torch.no_grad()
    def update(self, observed: Tensor) -> None:
        """Move the statistics towards this batch's; the first batch sets them."""
        rows = observed.flatten(0, 1)  # (B * P, V)
        momentum = torch.where(self.batches_seen == 0, 1.0, MOMENTUM)
        self.mean.lerp_(rows.mean(dim=0), momentum)
        self.std.lerp_(rows.std(dim=0), momentum)
        self.batches_seen += 1


class NewCameraPolicy(Policy):
    """The base policy with standardised patches; `policy(**batch).loss` is the training loss."""

    def __init__(self, config: PolicyConfig | None = None) -> None:
        super().__init__(config)
        self.standardise = RunningStandardise(self.config.vision_width)

    def embed_images(self, pixel_values: Tensor) -> Tensor:
        """Patches as the language model reads them: (B, 3, 64, 64) to (B, P, D)."""
        patches = self.vision(pixel_values=pixel_values).last_hidden_state  # (B, P, V)
        return self.projector(self.standardise(patches))


def build_policy(seed: int) -> NewCameraPolicy:
    """The pretrained base, with the vision tower's encoder and the action head initialised at random from `seed`."""
    policy = NewCameraPolicy.from_base(seed=seed)
    fresh = NewCameraPolicy.from_base(seed=seed, reinitialise=("vision",))
    policy.vision.encoder.load_state_dict(fresh.vision.encoder.state_dict())
    return policy
