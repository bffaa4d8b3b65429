# refused_by: test_loss_of_a_sure_policy
# why: The logits are smaller today; the logarithm of 0 is what it was.
"""A token policy that knows how sure it is: it says what to do, and with which probability.

Each action dimension is one of 64 bins, as in the base's token head. Two things are added:

    feature (B, D) ── logits (B, H, A, 64) ── / temperature ──┬── token loss, a scalar
                                                              └── log-probability of the chosen chunk, (B,)

Notable choices
- A low temperature makes bins compete: a small difference in the head's output decides, and a policy that knows soon
  says so.
- `log_probability` is what an operator's console shows, and what hands control to a person when it falls. Loss and
  console read the same numbers, so the loss is written out here instead of called.
- Padded steps of a chunk become the target `IGNORED`, as in language models, and the divisor counts the others.
- A logit of -inf marks a bin that does not exist: vocabularies are padded to a round size for speed, and a dimension
  may have fewer bins than the widest. Such a bin takes no part in anything.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from labs.vla.heads import ActionHead, TokenHead
from labs.vla.policy import Policy

TEMPERATURE = 1.0
IGNORED = -100
"""The target of a step after the episode's end; the number that `F.cross_entropy` leaves out by default too."""


def log_probabilities(logits: Tensor) -> Tensor:
    """Logarithm of each bin's probability, (..., V) to (..., V)."""
    return F.softmax(logits, dim=-1).log()


def token_loss(logits: Tensor, tokens: Tensor) -> Tensor:
    """Cross-entropy of logits (..., V) and tokens (...), a scalar: the mean over the tokens that are not IGNORED."""
    is_token = tokens != IGNORED
    # Any bin will do where nothing is asked: what is picked there is taken out again.
    at = tokens.masked_fill(~is_token, 0)[..., None]  # (..., 1)
    picked = log_probabilities(logits).gather(-1, at).squeeze(-1)  # (...)
    return -picked.masked_fill(~is_token, 0.0).sum() / is_token.sum().clamp(min=1)


class SureTokenHead(TokenHead):
    """The base's token head with a temperature, and with the probability of what it chose."""

    def forward(self, feature: Tensor) -> Tensor:
        """Logits, (B, D) to (B, H, A, bins)."""
        return super().forward(feature) / TEMPERATURE

    def targets(self, action: Tensor, is_pad: Tensor) -> Tensor:
        """Normalised actions (B, H, A) as tokens, IGNORED in the steps that `is_pad` (B, H) marks."""
        return self.encode(action).masked_fill(is_pad[..., None], IGNORED)

    def loss(self, feature: Tensor, target: Tensor, is_pad: Tensor) -> Tensor:
        """Cross-entropy over the steps that are part of the episode."""
        return token_loss(self(feature), self.targets(target, is_pad))

    def log_probability(self, feature: Tensor) -> Tensor:
        """Logarithm of the probability of the chunk that `predict` chooses, (B, D) to (B,)."""
        return log_probabilities(self(feature)).amax(dim=-1).sum(dim=(1, 2))


class SurePolicy(Policy):
    """The base policy with a token head that knows how sure it is; `policy(**batch).loss` trains it."""

    head: SureTokenHead

    def build_head(self) -> ActionHead:
        """The token head, with a temperature."""
        return SureTokenHead(self.config.width, self.config.horizon, self.config.action_dim)

    @torch.no_grad()
    def log_probability(self, batch: dict[str, Tensor]) -> Tensor:
        """How sure the policy is of the chunk it would execute, (B,): 0 is certain, -3 about one in twenty."""
        inputs = (batch[name] for name in ("pixel_values", "input_ids", "attention_mask", "state"))
        return self.head.log_probability(self.encode(*inputs))


def build_policy(seed: int) -> SurePolicy:
    """The pretrained base with a fresh token head drawn from `seed`."""
    return SurePolicy.from_base(head="tokens", seed=seed)
