"""A robot that plans at every step, and moves by the mean of all its plans for this step.

    the plan of step t-2    a(t-2)  a(t-1)  a(t)    a(t+1)
    the plan of step t-1            a(t-1)  a(t)    a(t+1)  a(t+2)
    the plan of step t                      a(t)    a(t+1)  a(t+2)  a(t+3)
                                             │
                                      action of step t

A chunk of actions is a plan. Two plans in a row differ a little, and an arm that changes from one to the other shakes.
Temporal ensembling, from ACT (arXiv:2304.13705), moves by the weighted mean of the plans instead.

Notable choices
- The policy plans at every step, so what the camera sees counts at once.
- A newer plan has seen more. With every step of age, a plan's weight falls by the factor exp(-decay).
- Where all plans of an episode agree on a step, the arm makes exactly that movement: from the first step, for which
  there is only one plan, to the last.
- Half open is no command for a gripper, so its commands are not averaged. The largest one counts: the gripper closes as
  soon as one plan says so.
- A plan is added up when it arrives and not kept: the ensemble holds one sum for each of the steps ahead.
- Movements are averaged in metres, as the robot executes them.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from labs.vla.dataset import Batch
from labs.vla.policy import Policy, PolicyConfig
from labs.vla.rollout import Predict, Rollout, rollout

HORIZON = 12
"""Steps in a plan."""
DECAY = 0.05


class TemporalEnsemble:
    """The next action of every episode in a batch, from a `predict` that gives plans (B, H, A) in environment units.

    The last number of an action is the gripper's, the others are the movement. The episodes of a batch begin together
    and take their steps together; `reset` begins new ones, of any number.
    """

    def __init__(self, predict: Predict, horizon: int = HORIZON, decay: float = DECAY) -> None:
        self.predict = predict
        self.weights = torch.exp(-decay * torch.arange(horizon))[:, None]
        self.reset()

    def reset(self) -> None:
        """Forget all plans."""
        self.gripper = torch.full_like(self.weights, -torch.inf)
        self.movement = torch.zeros_like(self.weights)
        self.weight = torch.zeros_like(self.weights)

    def __call__(self, batch: Batch) -> Tensor:
        """Make a plan, and return the actions of this step, (B, 1, A)."""
        plan = self.predict(batch)  # (B, H, A)
        movement, gripper = plan[..., :-1], plan[..., -1:]
        self.gripper = torch.maximum(one_step_later(self.gripper, -torch.inf), gripper)
        self.movement = one_step_later(self.movement) + self.weights * movement
        self.weight = one_step_later(self.weight) + self.weights
        mean = self.movement / self.weight
        return torch.cat([mean, self.gripper], dim=-1)[:, :1]


def one_step_later(planned: Tensor, nothing: float = 0.0) -> Tensor:
    """What is planned for the steps ahead after one more step: the first step is over, and the last has no plan yet."""
    return torch.cat([planned[..., 1:, :], torch.full_like(planned[..., :1, :], nothing)], dim=-2)


def build_policy(seed: int) -> Policy:
    """The pretrained base with a fresh head for twelve steps, drawn from `seed`."""
    return Policy.from_base(replace(PolicyConfig.tiny(), horizon=HORIZON), seed=seed)


def run_episodes(policy: Policy, episodes: int, first_seed: int = 10_000) -> Rollout:
    """Run closed-loop episodes with seeds from `first_seed` on, planning at every step."""
    ensemble = TemporalEnsemble(policy.predict, policy.config.horizon)
    return rollout(policy, episodes=episodes, first_seed=first_seed, execute=1, predict=ensemble)
