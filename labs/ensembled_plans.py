"""What several robots do that move to the mean of their plans, from the definition, for several ways to forget.

For each robot and step: the mean over the plans that count, each weighted by exp(decay) to the power of its age, and
the largest of their gripper commands. A way to forget says which plan is the first that counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng
from labs.vla.tabletop import Tabletop

DEFAULT_DECAY = 0.01


@dataclass(frozen=True)
class Work:
    """What B robots meet in T steps."""

    states: Tensor
    """(T, B, S), whose last number is the gripper's."""
    plans: Tensor
    """(T, B, H, A): movements, and the gripper."""
    ended: Tensor
    """(T, B): whether a robot's episode ends with this step."""
    decay: float | None = None
    """None for the default."""


Forget = Callable[[Tensor], Tensor]
"""Which robots forget, (B,), where the episodes of those in `ended`, (B,), have ended."""
FORGET: dict[str, Forget] = {
    "own": lambda ended: ended,
    "nobody": torch.zeros_like,
    "everyone": torch.ones_like,
    "everyone_if_any": lambda ended: ended.any().expand_as(ended),
    "by_number": lambda ended: torch.stack([~ended.all(), ended.any(), *torch.zeros_like(ended)])[: len(ended)],
}


def random_work(
    rng: Rng, steps: int, robots: int, horizon: int, width: int, decay: float | None, gripper: float = 0.0
) -> Work:
    """Random states and plans. The last of several robots has one episode, the others have three of any length."""
    plans = torch.cat(
        [
            rng.uniform(steps, robots, horizon, width - 1, low=-0.1, high=0.1),
            rng.normal(steps, robots, horizon, 1, mean=gripper),
        ],
        dim=-1,
    )
    ended = torch.zeros(steps, robots, dtype=torch.bool)
    for robot in range(max(1, robots - 1)):
        ended[rng.integer(1, steps // 2), robot] = True
        ended[rng.integer(steps // 2, steps - 2), robot] = True
    return Work(rng.uniform(steps, robots, width), plans, ended, decay)


def first_plans(work: Work, forget: str) -> Tensor:
    """The first plan that counts for each robot in each step, (T, B)."""
    first = torch.zeros(work.ended.shape, dtype=torch.long)
    for step, ended in enumerate(work.ended[:-1]):
        first[step + 1] = torch.where(FORGET[forget](ended), step + 1, first[step])
    return first


def acted(work: Work, first: Tensor, first_weight: Tensor | None = None) -> Tensor:
    """The actions (T, B, A), where the plans from `first` on count, (T, B), and the weights from `first_weight` on."""
    horizon, here = work.plans.shape[2], work.states[..., :-1]
    places = here[:, :, None] + work.plans[..., :-1].cumsum(dim=2)
    actions = torch.empty_like(work.plans[:, :, 0])
    for step in range(len(actions)):
        since = range(max(0, step - horizon + 1), step + 1)
        made, ages = torch.tensor(since), step - torch.tensor(since)
        weights = weighted(work, ages)[:, None]
        counts = made[:, None] >= first[step]  # (N, B)
        divisor = (weights * (counts if first_weight is None else made[:, None] >= first_weight[step])).sum(dim=0)
        sums = (weights * counts)[..., None] * places[made, :, ages]
        actions[step, :, :-1] = sums.sum(dim=0) / divisor[:, None] - here[step]
        actions[step, :, -1] = work.plans[made, :, ages, -1].masked_fill(~counts, -torch.inf).amax(dim=0)
    return actions


def weighted(work: Work, ages: Tensor) -> Tensor:
    """The weights of plans of these ages."""
    return torch.exp((DEFAULT_DECAY if work.decay is None else work.decay) * ages)


def formulas(work: Work) -> dict[str, Tensor]:
    """The actions (T, B, A) of a single episode, by several formulas."""
    whole = replace(work, ended=torch.zeros_like(work.ended))
    newest = torch.arange(len(work.plans))[:, None].expand_as(work.ended)
    return {"weighted_mean": acted(whole, first_plans(whole, "own")), "newest_only": acted(whole, newest)}


def ways_to_forget(work: Work) -> dict[str, Tensor]:
    """The actions (T, B, A) for several ways to forget: the first that fits is the one that counts."""
    own, nobody = first_plans(work, "own"), first_plans(work, "nobody")
    ways = {name: acted(work, first_plans(work, name)) for name in FORGET}
    return {**ways, "places_only": acted(work, own, nobody), "weights_only": acted(work, nobody, own)}


def episode_alone(weights: Tensor, seed: int, longest: int) -> dict[str, Any]:
    """One episode of one robot, whose policy plans linearly in its state, with weights (H, S, A)."""
    table = Tabletop(max_steps=longest)
    observation, info = table.reset(seed=seed)
    states: list[Tensor] = []
    over = False
    while not over:
        states.append(torch.from_numpy(observation["state"])[None])
        seen = torch.stack(states)
        plans = (seen[:, :, None, :, None] * weights).sum(dim=3)
        action = acted(Work(seen, plans, torch.zeros(seen.shape[:2], dtype=torch.bool)), torch.zeros(seen.shape[:2]))
        observation, _, terminated, truncated, info = table.step(action[-1, 0].numpy())
        over = terminated or truncated
    return {**info, "steps": len(states), "first_state": states[0][0]}


def explanation(found: Tensor, ways: Mapping[str, Tensor], tolerance: float) -> str:
    """The first way that gives the movements of the actions (T, B, A) that were found, or "another"."""
    for name, wanted in ways.items():
        if (found - wanted)[..., :-1].abs().max() < tolerance:
            return name
    return "another"
