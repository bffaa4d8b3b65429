"""Measures the learner's robots for the grader and `lab run`; runs with the learner's code in the sandboxed child."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from debugkit import Declare
from labs.vla.dataset import Batch, batches, demonstrations
from labs.vla.policy import PolicyConfig
from labs.vla.rollout import Rollout
from labs.vla.training import fit

BATCH_SIZE = 64
TRAINING_STEPS = 150
EPISODES, ROBOTS = 48, 8
MEASURED = ("success", "wrong_block", "distance", "steps")


class Planner(nn.Module):
    """A policy whose plans are given: row r of the observations of step t gets `plans[t, r]`."""

    def __init__(self, plans: Tensor) -> None:
        super().__init__()
        self.config = replace(PolicyConfig.tiny(), horizon=plans.shape[2], action_dim=plans.shape[3])
        self.plans = plans
        self.asked: list[list[int]] = []
        self.answers: list[Tensor] = []

    def predict(self, batch: Batch) -> Tensor:
        """The plans (B, H, A) for observations."""
        self.asked.append([int(batch["step"][0]), len(batch["row"])])
        self.answers.append(self.plans[batch["step"], batch["row"]])
        return self.answers[-1]


class Steering(nn.Module):
    """A policy whose plan is linear in the robot's state, with weights (H, S, A); `states` are its observations."""

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.config = replace(PolicyConfig.tiny(), horizon=len(weights))
        self.weights = weights
        self.states: list[Tensor] = []

    def predict(self, batch: Batch) -> Tensor:
        """The plans (B, H, A) for observations."""
        self.states.append(batch["state"].clone())
        return (batch["state"][:, None, :, None] * self.weights).sum(dim=2)


def executed(
    learner: Any,
    states: Tensor,
    plans: Tensor,
    ended: Tensor | None = None,
    decay: float | None = None,
    all_at_once: bool = False,
    one_by_one: bool = False,
) -> dict[str, Any]:
    """The actions (T, B, A) for states (T, B, S) and plans (T, B, H, A), and what the policy was asked for.

    After step t there is a `reset(ended[t])`; with `all_at_once`, a `reset()` where all have ended, and before step 0;
    with `one_by_one`, a `reset` for each robot whose episode has ended. `checkpoint` has the names in a checkpoint of
    these robots, whose policy has no weights.
    """
    planner = Planner(plans)
    options = {} if decay is None else {"decay": decay}
    robots = learner.policy.EnsemblingRobots(planner, states.shape[1], **options).eval()
    if all_at_once:
        robots.reset()
    given, actions = states.clone(), []
    for step, row in enumerate(given):
        order = torch.arange(len(row))
        actions.append(robots.select_action({"state": row, "row": order, "step": torch.full_like(order, step)}))
        if all_at_once:
            if ended is not None and ended[step].all():
                robots.reset()
        elif ended is not None:
            for mask in torch.diag(ended[step])[ended[step]] if one_by_one else [ended[step].clone()]:
                robots.reset(mask)
    planned = [plans[step] for step, _ in planner.asked]
    changed = not all(map(torch.equal, planner.answers, planned)) or not torch.equal(given, states)
    return {"actions": actions, "asked": planner.asked, "changed": changed, "checkpoint": list(robots.state_dict())}


def built(learner: Any, seed: int) -> dict[str, Tensor]:
    """What a checkpoint of robots with a fresh policy holds."""
    return dict(learner.policy.EnsemblingRobots(learner.policy.build_policy(seed), 2).state_dict())


def action(learner: Any, batch: Batch, seed: int) -> Tensor:
    """The first action (B, 1, A) of robots with a fresh policy."""
    policy = learner.policy.build_policy(seed).eval()
    return learner.policy.EnsemblingRobots(policy, len(batch["state"])).select_action(batch)[:, None]


def steered(learner: Any, weights: Tensor, **asked: int) -> dict[str, Any]:
    """What `evaluate` returns for a policy with these weights (H, S, A), and the states that it saw, (B, S) each."""
    steering = Steering(weights)
    result = learner.policy.evaluate(steering, **asked)
    return {**_plain(result), "states": steering.states}


def trained_rollout(learner: Any, seed: int) -> dict[str, Tensor]:
    """Fine-tune from the base and let eight robots run episodes."""
    return _plain(learner.policy.evaluate(_train(learner, seed), EPISODES, ROBOTS, 500_000 + seed))


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: robots with a fresh policy, and how `evaluate` resets them."""
    robots = learner.policy.EnsemblingRobots(learner.policy.build_policy(0), 1)
    frames = demonstrations(64, seed=44, horizon=learner.policy.HORIZON)
    return {
        "model": robots,
        "batch": next(batches(frames, 32, steps=1, seed=44)),
        "optimizer": torch.optim.AdamW(robots.parameters(), lr=1e-3),
        "loss_fn": lambda robots, batch: robots.policy(**batch).loss,
        "declare": Declare(reset=lambda robots: robots.reset(torch.tensor([True]))),
    }


def symptom(learner: Any) -> None:
    """Trains the policy and lets eight robots run six episodes each: the output of `lab run 44`."""
    print(f"Fine-tuning the policy with plans of {learner.policy.HORIZON} steps, {TRAINING_STEPS} steps\n")
    print("  step    loss")

    def report(step: int, loss: float) -> None:
        if step % 50 == 0 or step == TRAINING_STEPS - 1:
            print(f"  {step:4d}  {loss:6.3f}", flush=True)

    result = learner.policy.evaluate(_train(learner, 44, report), EPISODES, ROBOTS)
    print(f"\n{ROBOTS} robots, the same policy    success   wrong block   actions")
    for name, rows in (("their first episodes", slice(ROBOTS)), ("all later ones", slice(ROBOTS, None))):
        success, wrong, steps = (getattr(result, one)[rows].mean() for one in ("success", "wrong_block", "steps"))
        print(f"  {name:24} {success:9.0%} {wrong:13.0%} {steps:9.1f}")


def _plain(result: Rollout) -> dict[str, Tensor]:
    return {name: torch.from_numpy(getattr(result, name)) for name in MEASURED}


def _train(learner: Any, seed: int, on_step: Any = None) -> Any:
    policy = learner.policy.build_policy(seed)
    frames = demonstrations(TRAINING_STEPS * BATCH_SIZE, seed, horizon=policy.config.horizon)
    fit(policy, frames, steps=TRAINING_STEPS, seed=seed, batch_size=BATCH_SIZE, on_step=on_step)
    return policy
