"""Builds the policy: the pretrained base, a new head, and the statistics of the arm's actions.

    config.yaml ─ build ─ policy ─ wrapped ─ what is trained
                             └──── WeightAverage ─ what is evaluated

Notable choices
- The statistics are buffers of the policy, so the policy's state is enough to convert its actions.
- `wrapped` returns a module with the policy's own parameters: training it trains the policy.
- Where `compile` is false the wrapped model runs eagerly. Checkpoints and logs are the same with and without it.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from labs.vla.normalization import ActionStatistics
from labs.vla.policy import Policy, PolicyConfig


def build(config: dict, statistics: ActionStatistics | None = None) -> Policy:
    """The policy of a configuration; its head is drawn from the seed.

    Without `statistics` it has those of the base, which took metres.
    """
    settings = config["policy"]
    sizes = replace(PolicyConfig.tiny(), horizon=settings["horizon"])
    policy = Policy.from_base(sizes, head=settings["head"], seed=config["seed"])
    if statistics is not None:
        policy.action_statistics = statistics
    return policy


def wrapped(config: dict, policy: Policy) -> nn.Module:
    """The policy as it is trained, compiled if the configuration says so."""
    torch.compiler.set_stance("default" if config["policy"]["compile"] else "force_eager")
    return torch.compile(policy)
