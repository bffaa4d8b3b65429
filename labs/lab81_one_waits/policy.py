"""A policy for recordings in which the camera sometimes failed, trained by several processes.

A third of the recorded frames have an instruction, a state and an action, but no image. They still show how the arm
moves, so they stay in the data. A batch of B frames holds N images and a mask of the frames they belong to:

    pixel_values (N, 3, 64, 64) ── tower, projector ── (N, P, D) ┐
    has_image (B,) ────────────────────────────────────────────── scatter ── (B, P, D) ┐
    input_ids (B, L) ── token embedding ─────────────────────────────────── (B, L, D) ├─ Llama ─ last token ─ head
    state (B, 3) ────── proprioception ──────────────────────────────────── (B, 1, D) ┘

Notable choices
- A frame without an image is a shorter sequence: the language model does not attend to its patches, and does not count
  them as positions.
- Each process has its own batches. `DistributedDataParallel` averages the gradients during the backward pass, so all
  processes take the same step and keep the same weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from labs.vla.policy import Policy, PolicyOutput

TIMEOUT = timedelta(seconds=5)
"""How long a process waits for the others before it raises: at most a minute. NCCL's default is ten minutes."""


class MixedPolicy(Policy):
    """The base policy, on any device, for batches in which only some frames, or none, have an image."""

    def forward(
        self,
        pixel_values: Tensor,
        has_image: Tensor,
        input_ids: Tensor,
        attention_mask: Tensor,
        state: Tensor,
        action: Tensor | None = None,
        action_is_pad: Tensor | None = None,
    ) -> PolicyOutput:
        """The training loss if `action` (B, H, A), in environment units, is given; else the predicted chunk."""
        patches = self.embed_frames(pixel_values, has_image)  # (B, P, D)
        embeddings, mask = self.join_prefix(patches, input_ids, attention_mask, state)
        mask[:, : patches.shape[1]] = has_image[:, None]
        feature = self.run_language_model(embeddings, mask)[:, -1]  # (B, D)
        if action is None:
            return PolicyOutput(action=self.decode(feature))
        if action_is_pad is None:
            action_is_pad = action.new_zeros(action.shape[:2], dtype=torch.bool)
        return PolicyOutput(loss=self.loss(feature, action, action_is_pad))

    @torch.no_grad()
    def predict(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The action chunk for observations, (B, H, A) in environment units, without a graph; actions are ignored."""
        return self(**{name: value for name, value in batch.items() if not name.startswith("action")}).action

    def embed_frames(self, pixel_values: Tensor, has_image: Tensor) -> Tensor:
        """The patches of every frame, (B, P, D), from the images of the frames that have one, (N, 3, 64, 64)."""
        patches_per_image = (self.config.image_size // self.config.patch_size) ** 2
        patches = pixel_values.new_zeros(len(has_image), patches_per_image, self.config.width)
        if len(pixel_values) > 0:
            patches[has_image] = self.embed_images(pixel_values)
        return patches


def join_processes(rank: int, world_size: int, address: str) -> None:
    """Join a group of `world_size` processes at `address`."""
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world_size, timeout=TIMEOUT)


def wrap(policy: MixedPolicy) -> nn.Module:
    """The policy as `train` takes it: the same weights in all processes, gradients averaged over them in each step."""
    return DistributedDataParallel(policy)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterable[dict[str, Tensor]]) -> list[float]:
    """Train one step on each of this process's batches, in training mode; returns the losses.

    All processes have equally many batches.
    """
    losses = []
    model.train()
    for batch in batches:
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
