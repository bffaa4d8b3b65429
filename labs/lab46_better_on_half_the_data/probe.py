"""Measures both directions of the learner's formats for the grader and `lab run`; runs with the learner's code.

Recorded frames are a dictionary: `image` uint8 (N, 64, 64, 3), `state` (N, 3), `instruction`, N sentences, `action`
(N, H, 3) and `action_is_pad` (N, H).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader

from labs.two_robots import ROBOTS, recordings, run
from labs.vla.dataset import Batch, Frames, batches, collate
from labs.vla.policy import Policy
from labs.vla.rollout import Rollout

BATCH_SIZE = 64
TRAINING_STEPS = 150
CHECKED = 128
"""Frames of each robot that debugkit gets."""
EPISODES_APART = 1000
"""Between the first episodes of the two robots, so that they have different tables."""


def mixed(learner: Any, recorded: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The mixture of these recordings, and the recordings after it was made."""
    frames = {robot: _frames(raw) for robot, raw in recorded.items()}
    mixture = _raw(learner.policy.mixture(frames))
    return {**mixture, "recorded": {robot: _raw(own) for robot, own in frames.items()}}


def driven(learner: Any, robot: str, observed: Batch, plan: Tensor) -> dict[str, Any]:
    """A robot's commands for a policy's plan (B, H, 3), what the policy received, and both after that."""
    policy = _Planned(plan.clone())
    given = {name: value.clone() for name, value in observed.items()}
    command = learner.policy.Driver(policy, robot).act(given)
    return {"command": command, "received": policy.received, "observed": given, "plan": policy.plan}


def described(
    learner: Any, gripper: tuple[float, float], recorded: Mapping[str, Any], observed: Batch, plan: Tensor
) -> dict[str, Tensor] | None:
    """The mixture's actions and a robot's commands, with another `gripper` in bench's entry; None if it has none."""
    formats = learner.policy.FORMATS
    try:
        other = replace(formats["bench"], gripper=gripper)
    except TypeError:
        return None
    with patch.dict(formats, {"bench": other}):
        return {
            "action": mixed(learner, {"bench": recorded})["action"],
            "command": driven(learner, "bench", observed, plan)["command"],
        }


def fine_tuned(learner: Any, count: int, seed: int, steps: int, observed: Batch) -> dict[str, Any]:
    """The mixture of a short fine-tuning, the losses that it reported, and what its policy predicts."""
    recorded = _recordings(count, seed)
    mixture = _raw(learner.policy.mixture(recorded))
    losses: list[list[float]] = []
    policy = learner.policy.fine_tune(recorded, seed, steps, lambda step, loss: losses.append([step, loss]))
    silent = learner.policy.fine_tune(recorded, seed, steps)
    return {
        "mixture": mixture,
        "losses": torch.tensor(losses),
        "training": policy.training,
        "predicted": policy.predict(observed),
        "again": silent.predict(observed),
    }


def action(learner: Any, batch: Batch, seed: int) -> Tensor:
    """A robot's commands (B, H, 3) from a fresh policy."""
    return learner.policy.Driver(Policy.from_base(seed=seed).eval(), ROBOTS[seed % 2]).act(batch)


def trained_rollout(learner: Any, seed: int, count: int) -> dict[str, Tensor]:
    """Fine-tune on both robots' recordings, and run closed-loop episodes with each robot."""
    policy = learner.policy.fine_tune(_recordings(_frames_each(2), seed), seed, TRAINING_STEPS)
    return {robot: torch.from_numpy(_drive(learner, policy, robot, count, 500_000 + seed).success) for robot in ROBOTS}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy, a batch of the mixture, and the mixture's frames of each robot."""
    policy = Policy.from_base(seed=0)
    mixture = learner.policy.mixture(_recordings(CHECKED, 46))
    frames = [{**_frame(mixture, number), "robot": ROBOTS[number // CHECKED]} for number in range(len(mixture))]
    return {
        "model": policy,
        "batch": next(batches(mixture, 32, steps=1, seed=46)),
        "optimizer": torch.optim.AdamW(policy.parameters(), lr=1e-3),
        "dataloader": DataLoader(ConcatDataset([frames[:CHECKED], frames[CHECKED:]]), batch_size=32),
    }


def symptom(learner: Any) -> None:
    """Fine-tunes on the recordings of each robot and of both, and runs the robots: the output of `lab run 46`."""
    print(f"Fine-tuning the policy three times, {TRAINING_STEPS} steps each\n")
    print(f"                           loss    {EPISODES} episodes   success   closed on nothing   never closed")
    for name, robots in (("bench", ("bench",)), ("cell", ("cell",)), ("both robots", ROBOTS)):
        recorded = {robot: recordings(robot, _frames_each(len(robots)), seed=46) for robot in robots}
        losses: list[float] = []
        policy = learner.policy.fine_tune(recorded, 46, TRAINING_STEPS, _keep(losses))
        for robot in robots:
            loss = f"{sum(losses[-10:]) / 10:.3f}" if robot == robots[0] else ""
            title = f"recordings of {name}" if robot == robots[0] else ""
            result = _drive(learner, policy, robot, EPISODES, 10_000)
            held = result.success | result.wrong_block
            print(
                f"{title:25}{loss:>7}    on {robot:9} {result.success_rate:8.0%}"
                f"{_closed_on_nothing(result, held):20.0%}{_never_closed(result, held):15.0%}",
                flush=True,
            )


EPISODES = 50
LONGEST = 20
"""Actions in an episode in which the gripper never closes."""


def _closed_on_nothing(result: Rollout, held: Any) -> float:
    return float((~held & (result.steps < LONGEST)).mean())


def _never_closed(result: Rollout, held: Any) -> float:
    return float((~held & (result.steps == LONGEST)).mean())


def _frame(frames: Frames, number: int) -> Batch:
    """One frame as it is trained on."""
    return {name: value[0] for name, value in collate(frames, [number]).items()}


def _drive(learner: Any, policy: Policy, robot: str, episodes: int, first_seed: int) -> Rollout:
    driver = learner.policy.Driver(policy, robot)
    first_seed += EPISODES_APART * ROBOTS.index(robot)
    return run(policy, driver.act, robot, episodes, first_seed)


def _recordings(count: int, seed: int) -> dict[str, Frames]:
    return {robot: recordings(robot, count, seed) for robot in ROBOTS}


def _frames_each(robots: int) -> int:
    return TRAINING_STEPS * BATCH_SIZE // robots


def _keep(losses: list[float]) -> Callable[[int, float], None]:
    return lambda _step, loss: losses.append(loss)


class _Planned:
    """Replaces a policy: answers with one plan, and keeps what it receives."""

    def __init__(self, plan: Tensor) -> None:
        self.plan = plan
        self.received: Batch = {}

    def predict(self, batch: Batch) -> Tensor:
        self.received = {name: value.clone() for name, value in batch.items()}
        return self.plan


def _frames(raw: Mapping[str, Any]) -> Frames:
    arrays = {name: raw[name].numpy() for name in ("image", "state", "action", "action_is_pad")}
    return Frames(instruction=tuple(raw["instruction"]), **arrays)


def _raw(frames: Frames) -> dict[str, Any]:
    arrays = {name: torch.as_tensor(getattr(frames, name)) for name in ("image", "state", "action", "action_is_pad")}
    return {**arrays, "instruction": list(frames.instruction)}


def converted_alone(learner: Any, robot: str, conversion: str, numbers: Tensor) -> dict[str, Any]:
    """What one of an entry's conversions gives for `numbers` (B, H, 3), for its parts, and `numbers` after that.

    `rows` are those of (H, 3), `single` those of (3,), `empty` that of (0, 3).
    """
    given = numbers.clone()
    convert = getattr(learner.policy.FORMATS[robot], conversion)
    return {
        "whole": convert(given),
        "rows": [convert(row) for row in given],
        "single": [convert(one) for row in given for one in row],
        "empty": convert(given[0, :0]),
        "given": given,
    }


def with_another_entry(learner: Any, entry: dict[str, Any], reported: Tensor, recorded: Tensor, plan: Tensor) -> Any:
    """What the conversions of bench's entry give with these fields in it: `state`, `action` and `command`.

    None if an entry has no such fields.
    """
    try:
        other = replace(learner.policy.FORMATS["bench"], **entry)
    except TypeError:
        return None
    return {"state": other.state(reported), "action": other.action(recorded), "command": other.command(plan)}
