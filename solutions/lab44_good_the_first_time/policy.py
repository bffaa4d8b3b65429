"""Several robots that take one episode after another, and move to the mean of all their plans for this step.

    observations of B robots ── policy ── plans (B, H, A) ── places on the table ── sums over the plans (B, H, A-1)
                                                                                              │
    robots, one action each ── (B, A) ── from here to there ── the mean place of this step ───┘

A plan of movements says where the arm will be after each of the next steps. Two plans in a row differ a little, and an
arm that changes from one to the other shakes. So the arm goes to the mean of the places: temporal ensembling, as in
ACT (arXiv:2304.13705), whose plans are places too.

Notable choices
- One call of the policy plans for all robots, at every step.
- Episodes end at different times. A robot whose episode has ended gets its next table at once, while the others are in
  the middle of theirs.
- A plan is added up when it arrives and not kept: for each robot, there is one sum for each of the steps ahead.
- Half open is no command for a gripper, so its commands are not averaged. The largest one counts: the gripper closes as
  soon as one plan says so.
- An episode has ten steps at most. The arm needs four or five.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from labs.vla.dataset import Batch, observation_batch
from labs.vla.policy import Policy, PolicyConfig
from labs.vla.rollout import Rollout
from labs.vla.tabletop import Tabletop, stack_observations

HORIZON = 8
"""Steps in a plan."""
DECAY = 0.01
"""As in ACT."""
EPISODE_STEPS = 10
ALL = slice(None)


class EnsemblingRobots(nn.Module):
    """The actions of several robots, from a policy that plans for all of them: plans (B, H, A) in environment units.

    Each arm goes to the weighted mean of the places that the plans of its episode have for this step. The older a plan
    is, the more it counts: by the factor exp(decay) for each step of age. The last number of an action and of a state
    is the gripper's, the others are the movement and the place. A checkpoint holds the policy alone.
    """

    weights: Tensor
    places: Tensor
    weight: Tensor
    gripper: Tensor

    def __init__(self, policy: Policy, num_robots: int, decay: float = DECAY) -> None:
        super().__init__()
        self.policy = policy
        horizon, axes = policy.config.horizon, policy.config.action_dim - 1
        self.register_buffer("weights", torch.exp(decay * torch.arange(horizon))[:, None], persistent=False)
        self.register_buffer("places", torch.zeros(num_robots, horizon, axes), persistent=False)
        self.register_buffer("weight", torch.zeros(num_robots, horizon, 1), persistent=False)
        self.register_buffer("gripper", torch.full((num_robots, horizon, 1), -torch.inf), persistent=False)

    def reset(self, ended: Tensor | slice = ALL) -> None:
        """Begin new episodes for the robots that are True in `ended`, (B,), or for all: they forget their plans.

        The others go on with theirs. Plans that are forgotten may have had NaN or infinity in them.
        """
        for sums, nothing in self._memory():
            sums[ended] = nothing

    @torch.no_grad()
    def select_action(self, batch: Batch) -> Tensor:
        """Plan for all robots, and return the action of each one, (B, A), where row b of `batch` is of robot b."""
        plan, here = self.policy.predict(batch), batch["state"][:, :-1]
        movement, gripper = plan[..., :-1], plan[..., -1:]
        self._one_step_later()
        self.places += self.weights * (here[:, None] + movement.cumsum(dim=1))
        self.weight += self.weights
        self.gripper = torch.maximum(self.gripper, gripper)
        there = self.places[:, 0] / self.weight[:, 0]  # (B, A-1)
        return torch.cat([there - here, self.gripper[:, 0]], dim=1)

    def _one_step_later(self) -> None:
        """The first of the steps ahead is over, and for the last one there is no plan yet."""
        for sums, nothing in self._memory():
            sums.copy_(sums.roll(-1, dims=1))
            sums[:, -1].fill_(nothing)

    def _memory(self) -> list[tuple[Tensor, float]]:
        """What is kept from step to step, (B, H, ...), and its value where there is no plan."""
        return [(self.places, 0.0), (self.weight, 0.0), (self.gripper, -torch.inf)]


def build_policy(seed: int) -> Policy:
    """The pretrained base with a fresh head for eight steps, drawn from `seed`."""
    return Policy.from_base(replace(PolicyConfig.tiny(), horizon=HORIZON), seed=seed)


def evaluate(policy: Policy, episodes: int = 48, num_robots: int = 8, first_seed: int = 10_000) -> Rollout:
    """Run episodes with seeds from `first_seed` on: robot r has number r first, then every `num_robots`-th one."""
    robots = EnsemblingRobots(policy, num_robots)
    tables = [Tabletop(max_steps=EPISODE_STEPS) for _ in range(num_robots)]
    number = np.arange(num_robots)  # each robot's episode
    observations = [table.reset(seed=first_seed + row)[0] for row, table in enumerate(tables)]
    success, wrong_block = np.zeros((2, episodes), bool)
    distance, steps = np.zeros(episodes), np.zeros(episodes, np.int64)
    while (working := number < episodes).any():
        actions = robots.select_action(observation_batch(**stack_observations(observations))).numpy()
        ended = np.zeros(num_robots, bool)
        for row in np.flatnonzero(working):
            observations[row], _, terminated, truncated, info = tables[row].step(actions[row])
            ended[row] = terminated or truncated
            success[number[row]], wrong_block[number[row]] = info["success"], info["wrong_block"]
            distance[number[row]] = info["distance"]
        steps[number[working]] += 1
        number[ended] += num_robots
        robots.reset(torch.from_numpy(ended))
        for row in np.flatnonzero(ended):
            observations[row], _ = tables[row].reset(seed=first_seed + int(number[row]))
    return Rollout(success, wrong_block, distance, steps)
