"""Closed-loop episodes at each station, on tables that no run trains on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from data import Station, stations_of
from model import StationPolicy
from torch import Tensor

from labs.vla.dataset import Batch
from labs.vla.rollout import Predict, Rollout, rollout


def success_rates(policy: StationPolicy, config: Mapping[str, Any]) -> dict[str, float]:
    """The share of episodes that end with a grasp of the named block, for each station."""
    return {name: episodes(policy, name, config).success_rate for name in config["stations"]}


def episodes(policy: StationPolicy, station: str, config: Mapping[str, Any]) -> Rollout:
    """The evaluation's episodes at one station; every station gets the same tables."""
    settings = config["evaluate"]
    return rollout(
        policy,
        episodes=settings["episodes"],
        first_seed=settings["first_seed"],
        execute=settings["execute"],
        predict=controller(policy, station, stations_of(config)[station]),
    )


def controller(policy: StationPolicy, name: str, station: Station) -> Predict:
    """The policy as a station runs it: its camera's picture in, movements of its arm out, (B, H, 3)."""

    def predict(batch: Batch) -> Tensor:
        seen = {**batch, "pixel_values": station.see(batch["pixel_values"])}
        return station.movements(policy.act(name, seen))

    return predict
