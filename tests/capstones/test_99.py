"""Capstone 99: its evidence is that of the project as it is handed out, and shows no fault but the first."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
import yaml

from labs.capstones.capstone import find_capstone

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "labs/capstones/capstone_99_four_at_once"
SOLUTION = ROOT / "solutions/capstone_99_four_at_once"
HANDOUT = FOLDER / "handout"


def test_the_config_diff_changes_nothing_but_the_arms_at_once() -> None:
    from labs.capstones.capstone_99_four_at_once.make_evidence import config_diff

    assert (HANDOUT / "config.diff").read_text(encoding="utf-8") == config_diff()
    changed = [line for line in config_diff().splitlines() if re.match(r"[+-] ", line)]
    assert changed == ["-  arms_at_once: 1", "+  arms_at_once: 4"]


def test_in_the_log_nearly_all_episodes_end_at_the_same_step() -> None:
    """So no arm leaves the batch before another: neither its rows nor the order of the results can show anything."""
    config = yaml.safe_load((FOLDER / "config.yaml").read_text(encoding="utf-8"))
    last = (HANDOUT / "train.log").read_text(encoding="utf-8").splitlines()[-1]
    late, count = map(int, re.findall(r"\d+", last))
    assert count == config["evaluate"]["episodes"]
    assert late >= 0.95 * count


def test_the_log_and_the_table_agree() -> None:
    log = (HANDOUT / "train.log").read_text(encoding="utf-8")
    table = (HANDOUT / "runs.txt").read_text(encoding="utf-8")
    (row,) = [line for line in table.splitlines() if "train.log" in line]
    assert re.findall(r"(\d+)%", row) == re.findall(r"success +(\d+)%", log)


def test_one_picture_alone_does_not_show_the_first_fault() -> None:
    images = np.random.default_rng(99).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
    images[1] //= 4
    broken, fixed = (_pictures(folder) for folder in (FOLDER, SOLUTION))
    alone = [torch.cat([one.standardize(image[None]) for image in images]) for one in (broken, fixed)]
    torch.testing.assert_close(*alone)
    torch.testing.assert_close(fixed.standardize(images), alone[0])
    assert (broken.standardize(images) - alone[0]).abs().max() > 0.1


def test_the_capstone_names_three_faults_with_one_check_each() -> None:
    capstone = find_capstone("99")
    assert capstone is not None
    assert [len(fault.checks) for fault in capstone.faults] == [1, 1, 1]


def _pictures(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"pictures_of_{folder.parent.name}", folder / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
