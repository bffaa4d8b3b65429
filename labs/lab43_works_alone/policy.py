"""One policy for several robots: it plans for all of them at once, and each executes the first actions of its plan.

    observations of B robots ── policy ── plans (B, H, A) ── the first n actions of each ── safe_commands
                                                                                                 │
    robots, one action each ── (B, A) ── the next entry ── queue of n entries (B, A) ────────────┘

A rollout on one robot leaves most of a GPU idle. gymnasium's vector environments step B of them together, and the
policy sees their observations as a batch. After n steps the queue is empty, and there is a new plan for every robot.

Notable choices
- A robot's actions come from its own plan, whatever the other robots see and however many there are.
- One call of the policy plans for all robots: that is what makes a batch cheaper than a loop.
- One queue for all robots. An episode that ends early keeps its place: `SyncVectorEnv` begins another one there, which
  is not counted, until the last one of the round has ended.
- What a robot is asked for is made safe before it is queued. A movement that is too long keeps its direction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.vector import SyncVectorEnv
from numpy.typing import NDArray
from torch import Tensor, nn

from labs.vla.dataset import Batch, observation_batch
from labs.vla.policy import Policy
from labs.vla.rollout import Rollout
from labs.vla.tabletop import CLOSED, MAX_STEP, OPEN, Tabletop

ACTION_STEPS = 2
"""Actions of a plan that are executed before the next one."""
MEASURED = ("success", "wrong_block", "distance")
"""What an environment reports of an episode."""


class QueuedPolicy(nn.Module):
    """Turns a policy's plans (B, H, A) into one action for each of B robots per call, (B, A).

    The first `action_steps` actions of a plan are executed, in their order, or all of them if it has fewer. `policy` is
    asked for plans only when they are used up, and gets the observations of that step; its plans are not modified.
    `reset` begins new episodes, of any number of robots.
    """

    def __init__(self, policy: Policy, action_steps: int = ACTION_STEPS) -> None:
        super().__init__()
        self.policy = policy
        self.action_steps = action_steps
        self.queue: deque[Tensor] = deque()

    def reset(self) -> None:
        """Discard the actions that are left of the last plans."""
        self.queue.clear()

    def select_action(self, batch: Batch) -> Tensor:
        """The next action of every robot, (B, A), where row b of `batch` is what robot b observes."""
        if not self.queue:
            self.queue.extend(self(**batch))
        return self.queue.popleft()

    def forward(self, **observations: Tensor) -> tuple[Tensor, ...]:
        """Plan for all robots: the actions of each of the next steps, (B, A), made safe."""
        plans = self.policy.predict(observations)[:, : self.action_steps]  # (B, n, A)
        commands = safe_commands(plans.flatten(0, 1))  # (B·n, A)
        return commands.unflatten(0, (plans.shape[1], -1)).unbind()


def safe_commands(commands: Tensor) -> Tensor:
    """Commands (N, A) as a robot may execute them; the last number is the gripper's, the others are the movement.

    A movement with more than 0.1 m along one axis is shortened until the longest axis has 0.1 m, so that its direction
    is kept. The gripper's number becomes 1 (closed) if it is above 0, else -1 (open).
    """
    movement, gripper = commands[:, :-1], commands[:, -1:]
    longest = movement.abs().amax(dim=1, keepdim=True)
    movement = movement * (MAX_STEP / longest.clamp(min=MAX_STEP))
    return torch.cat([movement, torch.where(gripper > 0, CLOSED, OPEN)], dim=1)


def build_policy(seed: int) -> QueuedPolicy:
    """The pretrained base with a fresh head drawn from `seed`, and a queue."""
    return QueuedPolicy(Policy.from_base(seed=seed))


def evaluate(robots: QueuedPolicy, episodes: int = 50, num_envs: int = 1, first_seed: int = 10_000) -> Rollout:
    """Run episodes with seeds from `first_seed` on, in rounds of `num_envs`; the last round may have fewer."""
    seeds = range(first_seed, first_seed + episodes)
    rounds = [_run(robots, seeds[start : start + num_envs]) for start in range(0, episodes, num_envs)]
    return Rollout(**{name: np.concatenate([one[name] for one in rounds]) for name in rounds[0]})


def _run(robots: QueuedPolicy, seeds: Sequence[int]) -> dict[str, NDArray[Any]]:
    envs = SyncVectorEnv([Tabletop] * len(seeds))
    observations, infos = envs.reset(seed=list(seeds))
    robots.reset()
    running = np.ones(len(seeds), bool)
    steps = np.zeros(len(seeds), np.int64)
    seen = {name: infos[name] for name in MEASURED}
    while running.any():
        actions = robots.select_action(observation_batch(**observations))  # (B, A)
        observations, _, terminated, truncated, infos = envs.step(actions.numpy())
        steps[running] += 1
        for name in MEASURED:
            seen[name][running] = infos[name][running]
        running &= ~(terminated | truncated)
    return {**seen, "steps": steps}
