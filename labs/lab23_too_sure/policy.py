"""A token policy that reports its confidence: it predicts a chunk and the probability of that chunk.

Each action dimension is one of 64 bins, as in the base's token head. Two things are added:

    feature (B, D) ── logits (B, H, A, 64) ── / temperature ──┬── token loss, a scalar
                                                              └── log-probability of the chosen chunk, (B,)

Notable choices
- A low temperature sharpens the distribution: a small difference in the head's output is enough to choose a bin, and
  the policy quickly becomes confident.
- `log_probability` is shown on the operator's console; when it falls, the operator takes over. Loss and console use
  the same numbers, so the loss is written here instead of calling a library's.
- Padded steps of a chunk get the target `IGNORED`, as in language models, and the mean is over the other steps. The
  first step of a chunk is never padded.
- A logit of -inf marks a bin that does not exist: vocabularies are padded to a round size for speed, and a dimension
  may have fewer bins than the largest one. Such a bin affects neither the loss nor any gradient.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from labs.vla.heads import ActionHead, TokenHead
from labs.vla.policy import Policy

TEMPERATURE = 0.03
IGNORED = -100
"""The target of a step after the episode's end; also the default `ignore_index` of `F.cross_entropy`."""


def log_probabilities(logits: Tensor) -> Tensor:
    """Logarithm of each bin's probability, (..., V) to (..., V)."""
    return F.softmax(logits, dim=-1).log()


def token_loss(logits: Tensor, tokens: Tensor) -> Tensor:
    """Cross-entropy of logits (..., V) and tokens (...), a scalar: the mean over the tokens that are not IGNORED."""
    is_token = tokens != IGNORED
    # Ignored steps need a valid index to gather; the value gathered there is set to 0 below.
    at = tokens.masked_fill(~is_token, 0)[..., None]  # (..., 1)
    picked = log_probabilities(logits).gather(-1, at).squeeze(-1)  # (...)
    return -picked.masked_fill(~is_token, 0.0).sum() / is_token.sum()


class SureTokenHead(TokenHead):
    """The base's token head with a temperature, and with the probability of the chosen chunk."""

    def forward(self, feature: Tensor) -> Tensor:
        """Logits, (B, D) to (B, H, A, bins)."""
        return super().forward(feature) / TEMPERATURE

    def targets(self, action: Tensor, is_pad: Tensor) -> Tensor:
        """Normalised actions (B, H, A) as tokens, IGNORED in the steps that `is_pad` (B, H) marks."""
        return self.encode(action).masked_fill(is_pad[..., None], IGNORED)

    def loss(self, feature: Tensor, target: Tensor, is_pad: Tensor) -> Tensor:
        """Cross-entropy over the steps of the episode."""
        return token_loss(self(feature), self.targets(target, is_pad))

    def log_probability(self, feature: Tensor) -> Tensor:
        """Logarithm of the probability of the chunk that `predict` chooses, (B, D) to (B,)."""
        return log_probabilities(self(feature)).amax(dim=-1).sum(dim=(1, 2))


class SurePolicy(Policy):
    """The base policy with a token head that reports its confidence; `policy(**batch).loss` trains it."""

    head: SureTokenHead

    def build_head(self) -> ActionHead:
        """The token head, with a temperature."""
        return SureTokenHead(self.config.width, self.config.horizon, self.config.action_dim)

    @torch.no_grad()
    def log_probability(self, batch: dict[str, Tensor]) -> Tensor:
        """Log-probability of the chunk that the policy would execute, (B,): 0 is certain, -3 about one in twenty."""
        inputs = (batch[name] for name in ("pixel_values", "input_ids", "attention_mask", "state"))
        return self.head.log_probability(self.encode(*inputs))


def build_policy(seed: int) -> SurePolicy:
    """The pretrained base with a fresh token head drawn from `seed`."""
    return SurePolicy.from_base(head="tokens", seed=seed)
