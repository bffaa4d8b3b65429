"""One policy for a fleet of robots. The observations of all robots are packed into one row, as inference servers do.

    robot 0: patches, instruction, state │ robot 1: patches, instruction, state │ robot 2: ...
    position   0 ........ 16 ....... 20  │  21 ....... 37 ......... 45 ... 46   │   47 ...

Instructions differ in length, and a batch that is padded to the longest one computes padding as well. A row has none. A
mask lets every token see the earlier tokens of its own observation, and no others.

Notable choices
- Positions count the tokens of the row, through all observations. Rotary attention depends on the distance between two
  tokens, so an observation gets the same action in every place of the row.
- A robot may have many cameras or long instructions: positions up to 4,096 are in use, in rows and in observations.
- Cosines and sines come from a table. It grows when a row is longer than all before, is kept in the dtype and on
  the device in which the language model computes, and is not part of a checkpoint.
- The fleet's server casts the policy with `.bfloat16()` or `.to(torch.bfloat16)`, which halves its memory: all weights
  are in bfloat16 then, and every layer computes in it. Float32 stays possible, before that and after it.
- In either dtype, a cosine or sine is off by at most 1e-3, and by the rounding of the result to the dtype.
- Observations arrive in float32, and actions leave in float32.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from labs.vla.policy import Policy, PolicyConfig


class RotaryTable(LlamaRotaryEmbedding):
    """Llama's rotary embedding with a config's frequencies and `head_dim`, looked up in a table instead of computed."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        self.table = torch.empty(2, 0, 2 * len(self.inv_freq))
        """Cosines and sines of the positions from 0 on, (2, N, head)."""

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines of all phases at `position_ids` (B, T), (B, T, head) each, in the dtype of `x`."""
        length = int(position_ids.max()) + 1
        if length > self.table.shape[1] or self.table.dtype != x.dtype or self.table.device != x.device:
            self.table = self.compute_table(length).to(x)
        cos, sin = self.table[:, position_ids]
        return cos, sin

    def compute_table(self, length: int) -> Tensor:
        """The table of the positions 0 to `length` - 1."""
        positions = torch.arange(length, device=self.inv_freq.device)
        frequencies, _ = self.compute_default_rope_parameters(self.config)
        phases = positions[:, None] * frequencies.to(positions.device)  # (N, head / 2)
        phases = torch.cat([phases, phases], dim=-1)
        return torch.stack([phases.cos(), phases.sin()])


class PackedPolicy(Policy):
    """The base policy, with all observations of a batch in one row; `predict(batch)` drives the fleet."""

    def __init__(self, config: PolicyConfig | None = None) -> None:
        super().__init__(config)
        self.language_model.rotary_emb = RotaryTable(self.language_model.config)

    def embed_images(self, pixel_values: Tensor) -> Tensor:
        """Image patches as inputs of the language model, in the policy's dtype."""
        return super().embed_images(pixel_values.to(self.proprioception.weight.dtype))

    def run_language_model(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        """Hidden states (B, T, D) of `embeddings` (B, T, D), 0 where `mask` (B, T) is 0. One pass over one row."""
        kept = mask.bool()
        row = embeddings[kept][None]  # (1, N, D)
        hidden = self.language_model(
            inputs_embeds=row,
            attention_mask=visible(kept),
            position_ids=torch.arange(row.shape[1], device=row.device)[None],
        ).last_hidden_state
        result = torch.zeros_like(embeddings)
        result[kept] = hidden[0]
        return result


def visible(kept: Tensor) -> Tensor:
    """Which token of a row sees which, (1, 1, N, N), for observations whose tokens are `kept` (B, T)."""
    robot = torch.arange(len(kept), device=kept.device)[:, None].expand_as(kept)[kept]  # (N,)
    same = robot[:, None] == robot[None]
    return same.tril()[None, None]


def build_policy(seed: int) -> PackedPolicy:
    """The pretrained base with a fresh head drawn from `seed`, in float32."""
    return PackedPolicy.from_base(seed=seed)
