"""Plans of one policy, executed by several arms.

An arm asks for a plan when it has executed its commands of the last one. Arms ask at different times: how many commands
of a plan an arm executes is a setting of its controller.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
from cell import Arm
from pictures import standardize
from torch import Tensor

from labs.vla.dataset import Batch, observation_batch
from labs.vla.policy import Policy


class Controller:
    """The commands of several arms, each of which has one episode.

    An arm is its place in `arms`, from the first step to the last. When its episode is over it is no longer active.
    """

    def __init__(self, policy: Policy, arms: Sequence[Arm]) -> None:
        self.policy = policy
        self.arms = list(arms)
        self.turns = torch.stack([arm.turn for arm in arms])  # (N, 2, 2)
        self.plans: list[deque[Tensor]] = [deque() for _ in arms]

    def act(self, active: Sequence[int], observation: dict[str, Any]) -> Tensor:
        """The next command of every active arm, (B, 3): the movement in the arm's own frame, and the gripper.

        Row r of the observation, and of the commands, is of arm `active[r]`. The arms that need a new plan get it from
        one call of the policy.
        """
        due = [row for row, arm in enumerate(active) if not self.plans[arm]]
        if due:
            batch = {name: value[due] for name, value in prepared(observation).items()}
            turns = self.turns[[active[row] for row in due]]
            commands = in_own_frame(self.policy.predict(batch), turns)
            for row, plan in zip(due, commands, strict=True):
                arm = active[row]
                self.plans[arm].extend(plan[: self.arms[arm].execute])
        return torch.stack([self.plans[arm].popleft() for arm in active])


def prepared(observation: dict[str, Any]) -> Batch:
    """The policy's input: `image` (B, 64, 64, 3), `state` (B, 3) and B sentences, as training prepares them."""
    batch = observation_batch(**observation)
    return {**batch, "pixel_values": standardize(observation["image"])}


def in_own_frame(plans: Tensor, turns: Tensor) -> Tensor:
    """Plans (B, H, 3) in the table's frame as commands (B, H, 3): `turns[b]` (2, 2) is that of the arm of row b."""
    movement = torch.einsum("bij,bhj->bhi", turns, plans[..., :2])
    return torch.cat([movement, plans[..., 2:]], dim=-1)
