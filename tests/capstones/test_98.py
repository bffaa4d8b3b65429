"""Capstone 98: its evidence is that of the project as it is handed out, and shows no fault of the schedule."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import yaml

from labs.capstones.capstone import find_capstone

FOLDER = Path(__file__).parents[2] / "labs/capstones/capstone_98_never_crashes"
LINE = re.compile(r"step +(\d+) +loss (\S+) +lr (\S+)")


def test_the_config_diff_adds_the_south_station_to_the_config_that_is_handed_out() -> None:
    from labs.capstones.capstone_98_never_crashes.make_evidence import config_diff

    assert (FOLDER / "handout/config.diff").read_text(encoding="utf-8") == config_diff()


def test_the_learning_rate_of_the_log_is_a_whole_schedule_over_the_updates_of_one_station() -> None:
    config = yaml.safe_load((FOLDER / "config.yaml").read_text(encoding="utf-8"))
    given, size = config["train"], config["train"]["batch_size"]
    counts = {name: station["frames"] // size for name, station in config["stations"].items()}
    updates, every = given["epochs"] * counts["north"], sum(counts.values()) // counts["north"]
    lines = [
        match.groups() for match in map(LINE.match, (FOLDER / "handout/train.log").read_text().splitlines()) if match
    ]
    assert int(lines[-1][0]) == updates * every
    for step, loss, rate in lines:
        # One of `every` steps is an update, in their middle.
        update = int(step) // every - (1 if int(step) % every == 0 else 0)
        near = {_rate(update + shift, updates, given) for shift in (0, 1)}
        assert any(float(rate) == pytest.approx(one, rel=0.01) for one in near)
        assert math.isfinite(float(loss))


def test_the_capstone_names_three_faults_with_one_check_each() -> None:
    capstone = find_capstone("98")
    assert capstone is not None
    assert [len(fault.checks) for fault in capstone.faults] == [1, 1, 1]


def _rate(update: int, updates: int, given: dict[str, float]) -> float:
    warm_up = min(1.0, (update + 1) / given["warm_up"])
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, update / updates)))
    return given["learning_rate"] * warm_up * (given["final"] + (1 - given["final"]) * cosine)
