"""Measures the learner's ensemble for the grader and `lab run`; runs with the learner's code in the sandboxed child."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from debugkit import Declare
from labs.vla.dataset import Batch, batches, demonstrations
from labs.vla.rollout import Predict, Rollout, rollout
from labs.vla.tabletop import Tabletop
from labs.vla.training import fit

BATCH_SIZE = 64
TRAINING_STEPS = 150


def executed(learner: Any, episodes: list[Tensor], decay: float | None = None, resets: bool = True) -> dict[str, Any]:
    """The actions (T, B, 1, A) of an ensemble for each episode's plans (T, B, H, A), and what it did to them.

    Plan t answers the observation {"step": t}; `asked` lists the observations for which an episode asked for a plan.
    With `resets` there is a `reset()` before each episode but the first.
    """
    plans = iter(())
    asked: list[int] = []

    def predict(batch: Batch) -> Tensor:
        asked.append(int(batch["step"]))
        return next(plans)

    horizon = episodes[0].shape[2]
    ensemble = learner.policy.TemporalEnsemble(predict, horizon, **({} if decay is None else {"decay": decay}))
    seen: dict[str, Any] = {"actions": [], "asked": [], "plans": []}
    for number, episode in enumerate(episodes):
        if number and resets:
            ensemble.reset()
        given = list(episode.clone())
        plans = iter(given)
        asked.clear()
        actions = [ensemble({"step": torch.tensor(step)}).clone() for step in range(len(given))]
        seen["actions"].append(torch.stack(actions))
        seen["asked"].append(list(asked))
        seen["plans"].append(torch.stack(given))
    return seen


def built(learner: Any, seed: int) -> dict[str, Tensor]:
    """The weights of a fresh policy."""
    return dict(learner.policy.build_policy(seed).state_dict())


def action(learner: Any, batch: Batch, seed: int) -> Tensor:
    """The first action (B, 1, A) of a fresh policy's ensemble."""
    policy = learner.policy.build_policy(seed).eval()
    return learner.policy.TemporalEnsemble(policy.predict)(batch)


def episodes(learner: Any, seed: int, count: int, first_seed: int | None) -> dict[str, Tensor]:
    """What `run_episodes` returns for a fresh policy; without `first_seed`, from the default seed on."""
    where = {} if first_seed is None else {"first_seed": first_seed}
    return _plain(learner.policy.run_episodes(learner.policy.build_policy(seed), count, **where))


def trained_rollout(learner: Any, seed: int, count: int) -> dict[str, Tensor]:
    """Fine-tune from the base and run closed-loop episodes."""
    return _plain(learner.policy.run_episodes(_train(learner, seed), count, first_seed=500_000 + seed))


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy, a batch of demonstrations, and the ensemble as its controller."""
    policy = learner.policy.build_policy(0)
    horizon = policy.config.horizon

    def controller(predict: Predict) -> Predict:
        return learner.policy.TemporalEnsemble(predict, horizon)

    return {
        "model": policy,
        "batch": next(batches(demonstrations(64, seed=47, horizon=horizon), 32, steps=1, seed=47)),
        "optimizer": torch.optim.AdamW(policy.parameters(), lr=1e-3),
        "declare": Declare(controller=controller),
    }


def symptom(learner: Any) -> None:
    """Trains the policy and runs it with and without the ensemble: the output of `lab run 47`."""
    print(f"Fine-tuning the policy with plans of {learner.policy.HORIZON} steps, {TRAINING_STEPS} steps\n")
    print("  step    loss")

    def report(step: int, loss: float) -> None:
        if step % 50 == 0 or step == TRAINING_STEPS - 1:
            print(f"  {step:4d}  {loss:6.3f}", flush=True)

    policy = _train(learner, 47, report)
    print("\n50 episodes                 success   actions   movements away from the block")
    _print_row("two actions of each plan", policy, 2, policy.predict)
    _print_row("the mean of all plans", policy, 1, learner.policy.TemporalEnsemble(policy.predict))


def _print_row(name: str, policy: Any, execute: int, predict: Predict) -> None:
    distances: dict[int, list[float]] = defaultdict(list)

    def measure(row: int, table: Tabletop) -> None:
        distances[row].append(float(table.scene.distances()[table.scene.target]))

    result = rollout(policy, execute=execute, predict=predict, on_frame=measure)
    away = [after > before for way in distances.values() for before, after in pairwise(way)]
    print(f"  {name:24} {result.success_rate:8.0%} {result.steps.mean():9.1f} {sum(away) / len(away):14.0%}")


def _plain(result: Rollout) -> dict[str, Tensor]:
    return {name: torch.from_numpy(getattr(result, name)) for name in ("success", "wrong_block", "distance", "steps")}


def _train(learner: Any, seed: int, on_step: Any = None) -> Any:
    policy = learner.policy.build_policy(seed)
    frames = demonstrations(TRAINING_STEPS * BATCH_SIZE, seed, horizon=policy.config.horizon)
    fit(policy, frames, steps=TRAINING_STEPS, seed=seed, batch_size=BATCH_SIZE, on_step=on_step)
    return policy
