"""Capstone c3: each fault is seen only without the ones before it, and the evidence is that of the project."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import yaml

from labs.authoring.lab_module import load_module
from labs.authoring.variants import find_variant
from labs.capstones.capstone import find_capstone

EXTENDED_DEPENDS_ON = ("debugkit", "labs", "solutions", "tests/capstones")

CAPSTONE = find_capstone("c3")
assert CAPSTONE is not None
PROBE: Any = load_module(CAPSTONE.folder / "probe.py")
PROJECT = ("model", "data", "evaluate", "checkpoint", "train")


@pytest.mark.extended
def test_the_job_as_handed_out_ends_before_its_first_validation_on_every_node(tmp_path: Path) -> None:
    config = _config()
    with _project(CAPSTONE.folder) as train:
        ends = [_end(train, config, tmp_path / name, memory) for name, memory in PROBE.NODES.items()]
    assert sorted(ends) == [25, 31, 36]
    assert max(ends) < config["validate_every"]
    assert not list(tmp_path.rglob("*.pt"))


@pytest.mark.extended
def test_without_the_first_fault_the_job_ends_between_its_first_validation_and_its_first_checkpoint(
    tmp_path: Path,
) -> None:
    config, folder = _config(), tmp_path / "project"
    shutil.copytree(CAPSTONE.folder, folder, ignore=shutil.ignore_patterns("handout", "wrong_fixes"))
    shutil.copy(CAPSTONE.solution / "model.py", folder)
    with _project(folder) as train:
        ends = [_end(train, config, tmp_path / name, memory) for name, memory in PROBE.NODES.items()]
    assert all(config["validate_every"] < end < config["save_every"] for end in ends)


def test_only_the_order_is_left_where_the_partial_fix_says_so() -> None:
    left = find_variant(CAPSTONE, "only_the_order").files(CAPSTONE)
    assert left["data.py"] == (CAPSTONE.folder / "data.py").read_text(encoding="utf-8")


def test_the_log_is_that_of_the_project() -> None:
    log = (CAPSTONE.folder / "handout" / "train.log").read_text(encoding="utf-8")
    for words in ("Killed after step 25:", "Killed after step 36:", "Killed after step 31:", "Checkpoints: none."):
        assert words in log
    assert "validated" not in log


def _config() -> dict[str, Any]:
    return yaml.safe_load((CAPSTONE.folder / "config.yaml").read_text(encoding="utf-8"))


def _end(train: ModuleType, config: dict[str, Any], folder: Path, memory: int) -> int:
    survived, losses = PROBE.job_on_a_node(train, config, folder, memory, config["steps"], folder.name)
    assert not survived
    return max(losses)


@contextmanager
def _project(folder: Path) -> Iterator[ModuleType]:
    """The module train.py of a project whose files import each other."""
    threads = torch.get_num_threads()
    others = {name: sys.modules.pop(name) for name in PROJECT if name in sys.modules}
    sys.path.insert(0, str(folder))
    torch.set_num_threads(1)
    try:
        importlib.invalidate_caches()
        yield importlib.import_module("train")
    finally:
        torch.set_num_threads(threads)
        sys.path.remove(str(folder))
        for name in PROJECT:
            sys.modules.pop(name, None)
        sys.modules.update(others)
