"""The language model: transformers' Llama, run on embeddings instead of ids, with two known problems avoided.

- Position ids come from the attention mask. Llama's default counts every column, so extra padding between the
  instruction and the state moves the state to another position and changes the action (by 0.75 standard deviations for
  eight more padding tokens, measured on an otherwise healthy policy). Counting only real tokens, it changes by 4e-7.
- Rotary frequencies stay in float32. Llama keeps them in a buffer, so `.bfloat16()` rounds them; at position 2,000 the
  cosine is then off by 0.33.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaModel
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from labs.vla.language import PAD_ID

if TYPE_CHECKING:
    from labs.vla.policy import PolicyConfig


def build_language_model(config: PolicyConfig) -> LlamaModel:
    """Build a Llama decoder without its vocabulary head."""
    model = LlamaModel(
        LlamaConfig(
            vocab_size=config.vocabulary_size,
            hidden_size=config.width,
            intermediate_size=config.mlp_width,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.key_value_heads,
            max_position_embeddings=config.max_positions,
            # Llama's 0.02 is intended for widths of thousands; at 64 it keeps attention uniform for hundreds of steps.
            initializer_range=0.08 if config.width < 256 else 0.02,
            pad_token_id=PAD_ID,
            use_cache=False,
        )
    )
    if config.width < 256:
        nn.init.normal_(model.embed_tokens.weight, std=0.3)
    model.rotary_emb = Float32RotaryEmbedding(model.config)
    return model


def position_ids_from_mask(attention_mask: Tensor) -> Tensor:
    """Positions that count only real tokens: (B, S) of 0 and 1 to (B, S), independent of the padding."""
    return (attention_mask.cumsum(dim=-1) - 1).clamp(min=0)


class Float32RotaryEmbedding(LlamaRotaryEmbedding):
    """Llama's rotary embedding with frequencies that `.to(dtype)` does not round."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        # fn may have moved, rounded or emptied the buffers: keep the device, recompute the values.
        with torch.device("cpu"):
            frequencies, self.attention_scaling = self.compute_default_rope_parameters(self.config)
        self.inv_freq = frequencies.to(self.inv_freq.device)
        self.original_inv_freq = self.inv_freq.clone()
        return self
