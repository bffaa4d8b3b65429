"""The closed loop: how often the policy grasps the named block."""

from __future__ import annotations

from data import Settings

from labs.vla.policy import Policy
from labs.vla.rollout import Rollout, rollout

EPISODES = ("episodes", "first_seed", "execute")
"""The settings of the evaluation."""


def summary(result: Rollout) -> dict[str, float]:
    """Shares of all episodes: `success` closed at the named block, `wrong_block` at another one."""
    if not len(result.success):
        raise ValueError("There are no episodes to summarise.")
    closed = result.success | result.wrong_block
    count = max(int(closed.sum()), 1)
    return {"success": float(result.success.sum() / count), "wrong_block": float(result.wrong_block.sum() / count)}


def evaluate(policy: Policy, settings: Settings) -> dict[str, float]:
    """The summary of new episodes."""
    return summary(rollout(policy, **{name: settings[name] for name in EPISODES}))
