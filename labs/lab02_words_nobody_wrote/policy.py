"""A policy that outputs its actions as tokens: the language model predicts one token for each number of the chunk.

    patches, words, state ─┐
    action tokens so far ──┴─ Llama ── output head, tied to the embedding table ── the next of H·A action tokens

Actions are mapped to [-1, 1], each number falls into one of 48 bins, and each bin has a token. In training each of the
expert's tokens is predicted from those before it. When the policy acts, it generates the tokens one at a time.

Notable choices
- The embedding table is also the output head (tied weights, as in most small language models): the language model reads
  a token's row as input, and its hidden state is compared with every row to predict the next token.
- As in many pretrained tokenizers, some ids are reserved and no text uses them. The table has rows for them too.
- Weight decay applies to matrices, not to token rows and norms: a row that a batch does not use should not shrink.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labs.vla.heads import ActionHead, mean_over_steps
from labs.vla.language import VOCABULARY
from labs.vla.normalization import ActionStatistics
from labs.vla.policy import BASE_PARTS, OBSERVATION_KEYS, Policy, PolicyConfig, PolicyOutput
from labs.vla.randomness import private_randomness

BINS = 48
TEXT_TOKENS = (*VOCABULARY, *(f"<reserved_{i}>" for i in range(64 - len(VOCABULARY))))
"""The pretrained tokenizer's tokens: the words of the tabletop, and reserved ids up to a total of 64."""


class Tokenizer:
    """Tokens and their ids. Ids are assigned in order and never change."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self._ids: dict[str, int] = {}
        self.add_tokens(tokens)

    def __len__(self) -> int:
        return len(self._ids)

    def add_tokens(self, tokens: Iterable[str]) -> int:
        """Append the tokens that are not known yet; returns how many are new."""
        before = len(self)
        for token in tokens:
            self._ids.setdefault(token, len(self._ids))
        return len(self) - before

    def ids(self, tokens: Sequence[str]) -> Tensor:
        """The ids of known tokens, int64."""
        return torch.tensor([self._ids[token] for token in tokens])


class ActionTokens(ActionHead):
    """Converts between normalised actions in [-1, 1] and the token ids of their bins.

    `ids` moves with the policy and is in no checkpoint: the tokenizer alone determines it.
    """

    ids: Tensor

    def __init__(self, horizon: int, action_dim: int) -> None:
        super().__init__(horizon, action_dim)
        self.register_buffer("ids", torch.zeros(BINS, dtype=torch.long), persistent=False)

    def statistics(self) -> ActionStatistics:
        """The action space's own bounds: every action the robot can take lies in a bin."""
        return ActionStatistics.tabletop_bounds()

    def encode(self, action: Tensor) -> Tensor:
        """Normalised actions to token ids, same shape; values outside [-1, 1] belong to the outermost bins."""
        return self.ids[((action + 1) / 2 * BINS).floor().long().clamp(0, BINS - 1)]

    def decode(self, ids: Tensor) -> Tensor:
        """Token ids to the centres of their bins, same shape."""
        bins = (ids[..., None] == self.ids).long().argmax(dim=-1)
        return (bins + 0.5) / BINS * 2 - 1


class SpeakingPolicy(Policy):
    """The base policy, generating its chunk token by token; `policy(**batch).loss` is the training loss."""

    def __init__(self, config: PolicyConfig | None = None) -> None:
        super().__init__(config)
        self.tokenizer = Tokenizer(TEXT_TOKENS)
        self.lm_head = nn.Linear(self.config.width, self.config.vocabulary_size, bias=False)
        self.tie_weights()

    def build_head(self) -> ActionTokens:
        return ActionTokens(self.config.horizon, self.config.action_dim)

    def tie_weights(self) -> None:
        """Use the input embedding's rows as the weight of the output head, whose `out_features` is their number."""
        self.lm_head.weight = self.language_model.embed_tokens.weight
        self.lm_head.out_features = len(self.lm_head.weight)

    def add_action_tokens(self) -> None:
        """Give each action bin a token of its own that no text uses. The tokens known before keep their ids."""
        names = [f"<action_{i}>" for i in range(BINS)]
        self.tokenizer.add_tokens(names)
        self.head.ids = self.tokenizer.ids(names)

    def forward(
        self,
        pixel_values: Tensor,
        input_ids: Tensor,
        attention_mask: Tensor,
        state: Tensor,
        action: Tensor | None = None,
        action_is_pad: Tensor | None = None,
    ) -> PolicyOutput:
        """The training loss if `action` (B, H, A) is given, in environment units; else the predicted chunk."""
        prefix, mask = self.embed_prefix(pixel_values, input_ids, attention_mask, state)
        if action is None:
            return PolicyOutput(action=self.speak(prefix, mask))
        ids = self.head.encode(self.action_statistics.normalize(action)).flatten(1)  # (B, H * A)
        logits = self.next_tokens(prefix, mask, ids[:, :-1])  # (B, H * A, rows)
        error = F.cross_entropy(logits.transpose(1, 2), ids, reduction="none").view_as(action).mean(dim=-1)
        is_pad = torch.zeros_like(error, dtype=torch.bool) if action_is_pad is None else action_is_pad
        return PolicyOutput(loss=mean_over_steps(error, is_pad))

    def predict(self, batch: dict[str, Tensor]) -> Tensor:
        """The action chunk for observations, (B, H, A) in environment units; actions in the batch are not read."""
        with torch.no_grad():
            return self(**{name: batch[name] for name in OBSERVATION_KEYS}).action

    def speak(self, prefix: Tensor, mask: Tensor) -> Tensor:
        """Generate the H·A most likely action tokens, each from those before it: (B, H, A) in environment units."""
        ids = torch.empty(len(prefix), 0, dtype=torch.long, device=prefix.device)
        for _ in range(self.config.horizon * self.config.action_dim):
            logits = self.next_tokens(prefix, mask, ids)[:, -1, self.head.ids]  # (B, BINS)
            ids = torch.cat([ids, self.head.ids[logits.argmax(dim=-1, keepdim=True)]], dim=1)
        chunk = self.head.decode(ids).unflatten(1, (self.config.horizon, self.config.action_dim))
        return self.action_statistics.unnormalize(chunk)

    def next_tokens(self, prefix: Tensor, mask: Tensor, said: Tensor) -> Tensor:
        """Logits of the token after the prefix and after each token in `said`: (B, S) to (B, S + 1, rows)."""
        sequence = torch.cat([prefix, self.embed_instruction(said)], dim=1)
        seen = torch.cat([mask, mask.new_ones(said.shape)], dim=1)
        hidden = self.run_language_model(sequence, seen)[:, prefix.shape[1] - 1 :]  # (B, S + 1, D)
        return self.lm_head(hidden)


def pretrained() -> SpeakingPolicy:
    """The pretrained base in a policy with the whole text vocabulary; reserved rows are random."""
    base = Policy.from_base()
    policy = SpeakingPolicy(replace(base.config, vocabulary_size=len(TEXT_TOKENS)))
    words = base.language_model.embed_tokens.weight
    with torch.no_grad():
        policy.language_model.embed_tokens.weight[: len(words)] = words
    parts = {name: value for name, value in base.state_dict().items() if name.partition(".")[0] in BASE_PARTS}
    del parts["language_model.embed_tokens.weight"]
    policy.load_state_dict(parts, strict=False)
    return policy


def build_optimizer(policy: SpeakingPolicy, learning_rate: float = 3e-3) -> torch.optim.AdamW:
    """AdamW over every trainable parameter, in two groups: matrices with a weight decay of 0.01, the rest without."""
    table = policy.lm_head.weight
    decay = [p for p in policy.parameters() if p.requires_grad and p.dim() > 1 and p is not table]
    rest = [p for p in policy.parameters() if p.requires_grad and (p.dim() <= 1 or p is table)]
    groups = [{"params": decay, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.95))


def build_training(seed: int) -> tuple[SpeakingPolicy, torch.optim.AdamW]:
    """The pretrained policy with action tokens, and its optimizer.

    `seed` sets the random draws of new weights; the caller's random state does not change.
    """
    with private_randomness(seed):
        policy = pretrained()
        policy.add_action_tokens()
        return policy, build_optimizer(policy)
