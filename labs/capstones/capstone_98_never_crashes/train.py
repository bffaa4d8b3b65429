"""Trains one policy on the batches of all stations.

    python train.py

Notable choices
- AdamW, clipped gradients, linear warm-up and a cosine that ends with the run.
- A step whose loss or gradient is not finite is left out: it changes neither the weights, nor the optimizer's state,
  nor the learning rate. A frame that a camera damaged must not end a run overnight.
- A fault that does not go away must end it: a run leaves out at most `max_left_out` steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
import yaml
from data import Mixture, stations_of
from model import StationPolicy, build_policy
from torch import nn

from labs.vla.dataset import Batch
from labs.vla.randomness import private_randomness

CONFIG = Path(__file__).with_name("config.yaml")
MAX_GRADIENT_NORM = 1.0
Log = Callable[[str], None]


class NonFiniteError(RuntimeError):
    """Too many steps of a run had a loss or a gradient that was not finite."""


class LeftOut:
    """Counts the steps that a run leaves out. Beyond `limit` in one run, it raises NonFiniteError."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.count = 0

    def add(self, step: int, station: str) -> None:
        """One more step is left out."""
        self.count += 1
        if self.count > self.limit:
            raise NonFiniteError(
                f"{self.count} steps had a loss or gradient that is not finite; the last was step {step}, a batch of "
                f"the {station} station. A run may leave out {self.limit}."
            )

    def updated(self) -> None:
        """The step was an update."""
        self.count = 0


def run(config: Mapping[str, Any], log: Log = print) -> StationPolicy:
    """A whole run: record, build, train. The caller's random state does not change."""
    settings = config["train"]
    stations = stations_of(config)
    frames = {name: station.record() for name, station in stations.items()}
    mixture = Mixture(stations, frames, settings["batch_size"])
    policy = build_policy(frames, config["seed"])
    with private_randomness(config["seed"]):
        fit(policy, mixture.stream(settings["epochs"]), settings["epochs"] * len(mixture), settings, log)
    return policy


def fit(
    policy: StationPolicy,
    stream: Iterable[tuple[str, Batch]],
    updates: int,
    settings: Mapping[str, Any],
    log: Log = print,
) -> list[float]:
    """Train in place, one step for each batch of the stream, and return the losses of all updates.

    `updates` is the length of the schedule: the number of updates of a run in which no step is left out. Raises
    NonFiniteError if more than `settings["max_left_out"]` steps of the run would be left out. Leaves the policy in
    evaluation mode.
    """
    optimizer = torch.optim.AdamW(policy.parameters(), lr=settings["learning_rate"], weight_decay=0.01)
    left_out = LeftOut(settings["max_left_out"])
    losses: list[float] = []
    recent: list[float] = []
    policy.train()
    for step, (station, batch) in enumerate(stream):
        rate = learning_rate(len(losses), updates, settings)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = policy.loss_at(station, batch)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRADIENT_NORM)
        if loss.isfinite() and norm.isfinite():
            optimizer.step()
            left_out.updated()
            losses.append(loss.item())
            recent.append(loss.item())
        else:
            left_out.add(step, station)
        if (step + 1) % settings["log_every"] == 0:
            mean = sum(recent) / len(recent) if recent else math.nan
            log(f"step {step + 1:4d}   loss {mean:.4f}   lr {rate:.2e}")
            recent.clear()
    policy.eval()
    return losses


def learning_rate(update: int, updates: int, settings: Mapping[str, Any]) -> float:
    """The rate of one update, counted from 0: linear warm-up, and a cosine down to the share `final` of the peak."""
    warm_up = min(1.0, (update + 1) / settings["warm_up"])
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, update / updates)))
    return settings["learning_rate"] * warm_up * (settings["final"] + (1 - settings["final"]) * cosine)


def read_config(path: Path = CONFIG) -> dict[str, Any]:
    """The settings of a run."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    from evaluate import success_rates

    config = read_config()
    policy = run(config)
    for station, rate in success_rates(policy, config).items():
        print(f"{station} success {rate:.0%}")
