"""A policy that answers with action tokens, one after another, as OpenVLA does (arXiv:2406.09246).

    patches, instruction, state ─┐
    dx dy ───────────────────────┴─ Llama ── head ── dx dy gripper

An action is three tokens: dx, dy and the gripper, each one of 64 bins. The hidden state of the robot's state gives the
first, and every token gives the next. On the robot the prefix is read once, its keys and values are kept in a cache,
and each token is read when it is written.

Notable choices
- The three numbers share one vocabulary of 64 tokens, one embedding table and one head, as OpenVLA's seven do.
- A batch is as wide as its longest instruction: `trim` removes the columns that are padding in every row.
- An observation gets the same tokens whatever else is in its batch and however much padding there is, on either side
  of the instruction or on both. The cache saves time and changes nothing.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.utils import ModelOutput

from labs.vla.dataset import Batch
from labs.vla.heads import ActionHead, TokenHead
from labs.vla.language_model import position_ids_from_mask
from labs.vla.normalization import ActionStatistics
from labs.vla.policy import OBSERVATION_KEYS, Policy, PolicyConfig

NUMBERS = 3
"""Tokens in an action."""


class NextTokenHead(TokenHead):
    """Hidden states (B, T, D) to the logits (B, T, bins) of the next token; also embeds tokens."""

    def __init__(self, width: int) -> None:
        super().__init__(width, horizon=1, action_dim=1)
        self.embedding = nn.Embedding(self.bins, width)
        nn.init.normal_(self.embedding.weight, std=0.3)

    def statistics(self) -> ActionStatistics:
        """The action space's bounds, which are -1 and 1 when normalised."""
        return ActionStatistics.tabletop_bounds()

    def forward(self, hidden: Tensor) -> Tensor:
        return super().forward(hidden).flatten(-3)


class ActionTokenPolicy(Policy):
    """The base policy with action tokens; `policy(**batch).loss` trains it, `predict(batch)` drives the robot."""

    def build_head(self) -> ActionHead:
        """The head that predicts and embeds action tokens."""
        return NextTokenHead(self.config.width)

    def forward(
        self,
        pixel_values: Tensor,
        input_ids: Tensor,
        attention_mask: Tensor,
        state: Tensor,
        action: Tensor,
    ) -> ModelOutput:
        """`logits` (B, 3, bins) of the tokens of the first action of `action` (B, H, 3), and their mean loss."""
        prefix, mask = self.embed_prefix(pixel_values, input_ids, attention_mask, state)
        tokens = self.head.encode(self.action_statistics.normalize(action[:, 0]))  # (B, 3)
        given = self.head.embedding(tokens[:, :-1])
        mask = F.pad(mask, (0, NUMBERS - 1), value=1)
        hidden = self.run_language_model(torch.cat([prefix, given], dim=1), mask)
        logits = self.head(hidden[:, -NUMBERS:])
        return ModelOutput(loss=F.cross_entropy(logits.transpose(1, 2), tokens), logits=logits)

    @torch.no_grad()
    def generate(self, batch: Batch, use_cache: bool = True) -> Tensor:
        """The likeliest tokens for each observation, (B, 3), each after those before it. No graph is recorded.

        All rows are computed together, one pass for each token. With the cache, the default, each position is read
        once; without it, every pass reads the whole sequence.
        """
        new, mask = self.embed_prefix(**{name: batch[name] for name in OBSERVATION_KEYS})
        cache, tokens = DynamicCache() if use_cache else None, mask[:, :0]
        for _ in range(NUMBERS):
            hidden = self.run_language_model(new, mask, cache)
            token = self.head(hidden[:, -1:]).argmax(dim=-1)  # (B, 1)
            written = self.head.embedding(token)
            new = written if use_cache else torch.cat([new, written], dim=1)
            mask = F.pad(mask, (0, 1), value=1)
            tokens = torch.cat([tokens, token], dim=1)
        return tokens

    def predict(self, batch: Batch, use_cache: bool = True) -> Tensor:
        """The action for each observation, (B, 1, 3) in environment units."""
        tokens = self.generate(batch, use_cache)
        return self.action_statistics.unnormalize(self.head.decode(tokens))[:, None]

    def run_language_model(self, embeddings: Tensor, mask: Tensor, cache: DynamicCache | None = None) -> Tensor:
        """Hidden states of `embeddings` (B, T, D). `mask` (B, S) begins with what is cached; if anything is, T is 1."""
        return self.language_model(
            inputs_embeds=embeddings,
            attention_mask=mask,
            position_ids=position_ids_from_mask(mask)[:, -embeddings.shape[1] :],
            past_key_values=cache,
            use_cache=cache is not None,
        ).last_hidden_state


def trim(batch: Batch) -> Batch:
    """The batch without the columns of the instructions that are padding in every row."""
    kept = batch["attention_mask"].any(dim=0)
    return {**batch, **{name: batch[name][:, kept] for name in ("input_ids", "attention_mask")}}


def training_loss(policy: ActionTokenPolicy, batch: Batch) -> Tensor:
    """The loss of a batch, trimmed. The policy stays in its mode."""
    return policy(**trim(batch)).loss


def build_policy(seed: int) -> ActionTokenPolicy:
    """The pretrained base with a fresh head for action tokens, drawn from `seed`."""
    return ActionTokenPolicy.from_base(PolicyConfig.tiny(), seed=seed)
