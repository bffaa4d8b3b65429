"""The policy of the nightly job: the pretrained base, with dropout on the feature that the action head reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labs.vla.dataset import Batch
from labs.vla.policy import OBSERVATION_KEYS, Policy, PolicyConfig


class NightlyPolicy(Policy):
    """The base policy with dropout before its head; `policy(**batch).loss` is the training loss."""

    def __init__(self, config: PolicyConfig | None = None) -> None:
        super().__init__(config)
        self.dropout = nn.Dropout(0.0)

    def encode(self, pixel_values: Tensor, input_ids: Tensor, attention_mask: Tensor, state: Tensor) -> Tensor:
        """The feature that the head reads, (B, D)."""
        return self.dropout(super().encode(pixel_values, input_ids, attention_mask, state))

    def frame_errors(self, batch: Batch) -> Tensor:
        """The error of each frame, (B,): smooth L1 on normalised actions, the mean over the steps of its chunk.

        In evaluation mode, for a batch in which every frame has as many steps, its mean is the training loss.
        """
        predicted = self.head.predict(self.encode(**{name: batch[name] for name in OBSERVATION_KEYS}))  # (B, H, A)
        target = self.action_statistics.normalize(batch["action"])
        error = F.smooth_l1_loss(predicted, target, beta=0.1, reduction="none").mean(dim=-1)  # (B, H)
        is_step = ~batch["action_is_pad"]
        return (error * is_step).sum(dim=1) / is_step.sum(dim=1).clamp(min=1)


def build_policy(seed: int, dropout: float) -> NightlyPolicy:
    """The pretrained base with a newly initialised regression head."""
    policy = NightlyPolicy.from_base(seed=seed)
    policy.dropout.p = dropout
    return policy


@contextmanager
def evaluating(policy: nn.Module) -> Iterator[None]:
    """Evaluation mode inside a block. Afterwards modes and random state are as before, also after an error."""
    modes = [(module, module.training) for module in policy.modules()]
    policy.eval()
    try:
        with torch.random.fork_rng(devices=()):
            yield
    finally:
        for module, training in modes:
            module.training = training
