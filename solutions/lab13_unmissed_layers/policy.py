"""A policy with an action decoder, as DETR has for boxes and ACT for actions: one query for each step of the chunk.

    language model's states (B, M, D) ────────┬───────────┬─── … ───┐
    queries (H, D) ─────────────────────── layer 1 ─── layer 2 ─ … ─ layer L ── norm ── linear ── (B, H, A)

Notable choices
- Each query starts from the last token, which has attended to the instruction and the robot's state. In every layer it
  attends to the other queries, so that the chunk is one motion, and to every patch.
- The decoder returns its states after all layers, stacked, because DETR has a separate loss for each of them.
  Here the loss and the robot both use the most refined one, the state after the last layer.
- Pre-norm layers with one final norm, shared by all states.
- Checkpoints store each parameter by its name and shape, so both stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labs.vla.heads import ActionHead, mean_over_steps
from labs.vla.policy import Policy, PolicyConfig


@dataclass(frozen=True)
class DecoderConfig(PolicyConfig):
    """The base policy's sizes, and the decoder's."""

    decoder_layers: int = 4
    decoder_heads: int = 4


class DecoderLayer(nn.Module):
    """Queries (B, H, D) attend to each other, then to the memory (B, M, D), then each passes through an MLP."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.self_norm = nn.LayerNorm(width)
        self.self_attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.cross_norm = nn.LayerNorm(width)
        self.cross_attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, queries: Tensor, memory: Tensor) -> Tensor:
        """The refined queries, (B, H, D)."""
        normed = self.self_norm(queries)
        queries = queries + self.self_attention(normed, normed, normed, need_weights=False)[0]
        normed = self.cross_norm(queries)
        queries = queries + self.cross_attention(normed, memory, memory, need_weights=False)[0]
        return queries + self.mlp(self.mlp_norm(queries))


class ActionDecoder(nn.Module):
    """Refines one learned query for each step of the chunk, layer by layer."""

    def __init__(self, width: int, horizon: int, layers: int, heads: int) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(horizon, width))
        self.layers = nn.ModuleList(DecoderLayer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, memory: Tensor) -> Tensor:
        """Normalised states after each layer, first to last, for memory (B, M, D): (L, B, H, D)."""
        queries = self.queries + memory[:, -1:]  # (B, H, D): the last token, once for each step
        states = []
        for layer in self.layers:
            queries = layer(queries, memory)
            states.append(self.norm(queries))
        return torch.stack(states)


class DecoderHead(ActionHead):
    """The action chunk, read from the decoder's last state; `feature` is the memory (B, M, D)."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config.horizon, config.action_dim)
        self.decoder = ActionDecoder(config.width, config.horizon, config.decoder_layers, config.decoder_heads)
        self.to_action = nn.Linear(config.width, config.action_dim)

    def forward(self, feature: Tensor) -> Tensor:
        """The normalised chunk, (B, M, D) to (B, H, A)."""
        states = self.decoder(feature)[-1]  # (B, H, D)
        return self.to_action(states)

    def loss(self, feature: Tensor, target: Tensor, is_pad: Tensor) -> Tensor:
        """Smooth L1 of the chunk, over the steps that are part of the episode."""
        error = F.smooth_l1_loss(self(feature), target, beta=0.1, reduction="none")  # (B, H, A)
        return mean_over_steps(error.mean(dim=-1), is_pad)

    def predict(self, feature: Tensor) -> Tensor:
        """The normalised chunk, (B, H, A)."""
        return self(feature)


class DecoderPolicy(Policy):
    """The base policy whose head is an action decoder over the language model's states."""

    config: DecoderConfig

    def build_head(self) -> DecoderHead:
        """A decoder with `config.decoder_layers` layers."""
        return DecoderHead(self.config)

    def encode(self, pixel_values: Tensor, input_ids: Tensor, attention_mask: Tensor, state: Tensor) -> Tensor:
        """The decoder's memory: the hidden states of all patches and of the last token, (B, P + 1, D).

        The instruction's own tokens are left out, since some are padding; the last token has attended to them.
        """
        images = self.embed_images(pixel_values)  # (B, P, D)
        embeddings, mask = self.join_prefix(images, input_ids, attention_mask, state)
        hidden = self.run_language_model(embeddings, mask)  # (B, P + L + 1, D)
        return torch.cat([hidden[:, : images.shape[1]], hidden[:, -1:]], dim=1)


def build_policy(seed: int, layers: int = 4) -> DecoderPolicy:
    """The pretrained base with a decoder of `layers` layers drawn from `seed`."""
    return DecoderPolicy.from_base(DecoderConfig(decoder_layers=layers), seed=seed)
