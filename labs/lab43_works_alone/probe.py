"""Measures the learner's queue for the grader and `lab run`; runs with the learner's code in the sandboxed child."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from debugkit import Declare
from labs.vla.dataset import Batch, batches, demonstrations
from labs.vla.rollout import Rollout
from labs.vla.training import fit

BATCH_SIZE = 64
TRAINING_STEPS = 150
ALONE, TOGETHER = 1, 3


class Planner(nn.Module):
    """A policy whose plans are given: row r of the observations of step t gets `plans[t, r]`, also in another batch."""

    def __init__(self, plans: Tensor) -> None:
        super().__init__()
        self.plans = plans
        self.asked: list[list[int]] = []
        self.answers: list[Tensor] = []

    def predict(self, batch: Batch) -> Tensor:
        """The plans (B, H, A) for observations, of which a copy is kept as well."""
        self.asked.append([int(batch["step"][0]), len(batch["row"])])
        self.answers.append(self.plans[batch["step"], batch["row"]])
        return self.answers[-1]


class Steering(nn.Module):
    """A policy whose plan is linear in the robot's state, with weights (H, 3, A); `sizes` lists its batches."""

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.weights = weights
        self.sizes: list[int] = []

    def predict(self, batch: Batch) -> Tensor:
        """The plans (B, H, A) for observations."""
        self.sizes.append(len(batch["state"]))
        return (batch["state"][:, None, :, None] * self.weights).sum(dim=2)


def queued(learner: Any, plans: Tensor, action_steps: int) -> list[Tensor]:
    """What `forward` returns for the plans (B, H, A)."""
    robots = learner.policy.QueuedPolicy(Planner(plans[None]), action_steps)
    return [entry.clone() for entry in robots(**_observations(0, len(plans)))]


def executed(
    learner: Any, episodes: list[Tensor], action_steps: int | None = None, resets: bool = True
) -> dict[str, Any]:
    """The actions of each episode whose policy would plan `plans[t]`, (T, B, H, A), and what the policy was asked for.

    `asked` has the step and the number of rows of each call. With `resets` there is a `reset()` before each episode but
    the first. `changed` is whether a plan of the policy was modified.
    """
    planner = Planner(episodes[0])
    robots = learner.policy.QueuedPolicy(planner, **({} if action_steps is None else {"action_steps": action_steps}))
    seen: dict[str, Any] = {"actions": [], "asked": [], "changed": False}
    for number, plans in enumerate(episodes):
        if number and resets:
            robots.reset()
        planner.plans, planner.asked, planner.answers = plans, [], []
        actions = [robots.select_action(_observations(step, plans.shape[1])).clone() for step in range(len(plans))]
        seen["actions"].append(actions)
        seen["asked"].append(planner.asked)
        planned = [plans[step, : len(answer)] for (step, _), answer in zip(planner.asked, planner.answers, strict=True)]
        if all(size == plans.shape[1] for _, size in planner.asked):
            seen["changed"] |= not all(map(torch.equal, planned, planner.answers))
    return seen


def built(learner: Any, seed: int) -> dict[str, Tensor]:
    """The weights of a fresh policy."""
    return dict(learner.policy.build_policy(seed).policy.state_dict())


def action(learner: Any, batch: Batch, seed: int) -> Tensor:
    """The first action (B, 1, A) of a fresh policy's queue."""
    return learner.policy.build_policy(seed).eval().select_action(batch)[:, None]


def steered(learner: Any, weights: Tensor, **asked: int) -> dict[str, Any]:
    """What `evaluate` returns for a policy with these weights (H, 3, A), and the sizes of its batches."""
    steering = Steering(weights)
    result = learner.policy.evaluate(learner.policy.QueuedPolicy(steering), **asked)
    return {**_plain(result), "sizes": steering.sizes}


def trained_rollout(learner: Any, seed: int, count: int, num_envs: list[int]) -> list[dict[str, Tensor]]:
    """Fine-tune from the base and run the same episodes in so many environments at a time."""
    robots = _train(learner, seed)
    return [_plain(learner.policy.evaluate(robots, count, together, 500_000 + seed)) for together in num_envs]


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy that controls three robots."""
    robots = learner.policy.build_policy(0)
    batch = next(batches(demonstrations(64, seed=43), TOGETHER, steps=1, seed=43))
    return {
        "model": robots,
        "batch": batch,
        "optimizer": torch.optim.AdamW(robots.parameters(), lr=1e-3),
        "loss_fn": lambda robots, batch: robots.policy(**batch).loss,
        "declare": Declare(inference=lambda robots, batch: robots(**batch)),
    }


def symptom(learner: Any) -> None:
    """Trains the policy and runs the same episodes alone and three at a time: the output of `lab run 43`."""
    print(f"Fine-tuning the policy, {TRAINING_STEPS} steps\n")
    print("  step    loss")

    def report(step: int, loss: float) -> None:
        if step % 50 == 0 or step == TRAINING_STEPS - 1:
            print(f"  {step:4d}  {loss:6.3f}", flush=True)

    robots = _train(learner, 43, report)
    print("\n48 episodes, the same tables   success   actions   distance at the end")
    for num_envs in (ALONE, TOGETHER):
        result = learner.policy.evaluate(robots, 48, num_envs)
        name = f"{num_envs} environment{'s' * (num_envs > 1)} at a time"
        distance = 100 * result.final_distance
        print(f"  {name:28} {result.success_rate:7.0%} {result.steps.mean():9.1f} {distance:18.0f} cm")


def _observations(step: int, robots: int) -> Batch:
    return {"row": torch.arange(robots), "step": torch.full((robots,), step)}


def _plain(result: Rollout) -> dict[str, Tensor]:
    return {name: torch.from_numpy(getattr(result, name)) for name in ("success", "wrong_block", "distance", "steps")}


def _train(learner: Any, seed: int, on_step: Any = None) -> Any:
    robots = learner.policy.build_policy(seed)
    frames = demonstrations(TRAINING_STEPS * BATCH_SIZE, seed)
    fit(robots.policy, frames, steps=TRAINING_STEPS, seed=seed, batch_size=BATCH_SIZE, on_step=on_step)
    return robots


def steered_by(learner: Any, weights: Tensor, action_steps: int, begun: int, asked: dict[str, int]) -> dict[str, Any]:
    """What `evaluate(robots, **asked)` returns for robots that execute `action_steps` actions of each plan.

    The plans are those of `weights`. `robots` have executed one action for `begun` others before. `sizes` are those of
    the batches in the evaluation, `action_steps` is what the robots have afterwards.
    """
    steering = Steering(weights)
    robots = learner.policy.QueuedPolicy(steering, action_steps)
    robots.select_action({"state": torch.ones(begun, 3)})
    steering.sizes.clear()
    result = learner.policy.evaluate(robots, **asked)
    return {**_plain(result), "sizes": steering.sizes, "action_steps": robots.action_steps}
