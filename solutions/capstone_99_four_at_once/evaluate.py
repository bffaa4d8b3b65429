"""Closed-loop episodes of all arms, on tables that no run trains on.

Notable choices
- Episode i is that of arm `i % len(arms)`, and its table is that of the seed `first_seed + i`, with any number of arms
  at once.
- The arms that work at once are a wave. The next wave begins when every arm of the last one is done.
- An arm whose episode is over stands still: it gets no further command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cell import Station, arms_of
from controller import Controller

from labs.vla.policy import Policy
from labs.vla.tabletop import stack_observations


@dataclass(frozen=True)
class Episode:
    """What became of one episode."""

    success: bool
    """Closed at the named block."""
    wrong_block: bool
    """Closed at another block."""
    steps: int


def episodes(policy: Policy, config: Mapping[str, Any]) -> list[Episode]:
    """All episodes of the evaluation: entry i is episode i."""
    settings = config["evaluate"]
    numbers = range(settings["episodes"])
    results: list[Episode] = []
    for first in range(0, len(numbers), settings["arms_at_once"]):
        results += wave(policy, config, numbers[first : first + settings["arms_at_once"]])
    return results


def wave(policy: Policy, config: Mapping[str, Any], numbers: Sequence[int]) -> list[Episode]:
    """The episodes of these numbers, at once; the results are in the order of `numbers`."""
    arms = arms_of(config)
    stations = [Station(arms[number % len(arms)]) for number in numbers]
    first_seed = config["evaluate"]["first_seed"]
    observations = [
        station.reset(seed=first_seed + number)[0] for station, number in zip(stations, numbers, strict=True)
    ]
    controller = Controller(policy, [station.arm for station in stations])
    active = list(range(len(stations)))
    results: dict[int, Episode] = {}
    step = 0
    while active:
        step += 1
        commands = controller.act(active, stack_observations([observations[arm] for arm in active]))
        for arm, command in zip(tuple(active), commands.numpy(), strict=True):
            observations[arm], _, terminated, truncated, info = stations[arm].step(command)
            if terminated or truncated:
                active.remove(arm)
                results[arm] = Episode(info["success"], info["wrong_block"], step)
    return [results[arm] for arm in range(len(stations))]


def success_rates(results: Sequence[Episode], config: Mapping[str, Any]) -> dict[str, float]:
    """The share of each arm's episodes that end with a grasp of the named block."""
    names = list(config["arms"])
    own = {name: results[place :: len(names)] for place, name in enumerate(names)}
    return {name: sum(one.success for one in rows) / len(rows) for name, rows in own.items()}


def report(results: Sequence[Episode], config: Mapping[str, Any]) -> list[str]:
    """What is printed after an evaluation."""
    lines = [f"{name:5} success {rate:4.0%}" for name, rate in success_rates(results, config).items()]
    late = sum(not (one.success or one.wrong_block) for one in results)
    return [*lines, f"{late} of {len(results)} episodes ran out of time"]
