"""The policy: the pretrained base with a head for four action dimensions, and statistics for each station."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from normalization import StationStatistics
from torch import Tensor, nn

from labs.vla.dataset import Batch, Frames
from labs.vla.policy import OBSERVATION_KEYS, Policy, PolicyConfig

ACTION_DIM = 4


class StationPolicy(Policy):
    """One set of weights for all stations; only the statistics are a station's own."""

    statistics: nn.ModuleDict

    def loss_at(self, station: str, batch: Batch) -> Tensor:
        """The head's loss on a batch of this station, a scalar."""
        feature = self.encode(**{name: batch[name] for name in OBSERVATION_KEYS})
        target = self.statistics[station].normalize(batch["action"])  # (B, H, 4)
        return self.head.loss(feature, target, batch["action_is_pad"])

    @torch.no_grad()
    def act(self, station: str, batch: Batch) -> Tensor:
        """The chunk of commands for this station's controller, (B, H, 4)."""
        feature = self.encode(**{name: batch[name] for name in OBSERVATION_KEYS})
        return self.statistics[station].unnormalize(self.head.predict(feature))


def build_policy(frames: Mapping[str, Frames], seed: int) -> StationPolicy:
    """The base with a new head, initialised from `seed`, and the statistics of these stations' frames."""
    policy = StationPolicy.from_base(PolicyConfig(action_dim=ACTION_DIM), seed=seed)
    policy.statistics = nn.ModuleDict({name: StationStatistics.of(own) for name, own in frames.items()})
    return policy
