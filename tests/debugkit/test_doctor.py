"""The checklist: eight rows, in one order, the same on the page and in the command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from debugkit.cli import app
from debugkit.doctor import Health, checklist, surroundings
from debugkit.doctor.checklist import ROWS, STAGES
from debugkit.rule import all_rules

PAGE = Path(__file__).parents[2] / "docs" / "debugkit" / "doctor.md"


def test_there_are_eight_rows_and_two_for_each_stage_in_order() -> None:
    assert len(ROWS) == 8
    assert [row.stage for row in ROWS] == [stage for stage in STAGES for _ in range(2)]


def test_the_page_has_the_rows_of_the_command() -> None:
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if re.match(r"\| \d \|", line)
    ]
    assert [(number, name, sign, command) for number, name, sign, command, _ in cells] == [
        (str(number), row.name, row.sign, f"`{row.command}`") for number, row in enumerate(ROWS, start=1)
    ]
    for row, (*_, then) in zip(ROWS, cells, strict=True):
        assert re.findall(r"\[lab (\d\d)\]", then) == list(row.labs)
        assert re.findall(r"\[(DK\d{3})\]", then) == list(row.rules)


def test_the_command_prints_every_row_in_order_with_what_it_found() -> None:
    said = CliRunner().invoke(app, ["doctor"]).stdout
    places = [said.index(f"{number}  {row.name}\n") for number, row in enumerate(ROWS, start=1)]
    assert places == sorted(places)
    for row in ROWS:
        assert f"seen   {row.sign}\n   first  {row.command}\n" in said
    stages = [said.index(stage.upper()) for stage in STAGES]
    assert stages == sorted(stages)


def test_every_row_found_something_and_nothing_twice() -> None:
    assert all(examined.lines for examined in checklist({}))
    names = [line.what for line in surroundings({})]
    assert len(names) == len(set(names))


def test_rules_of_a_row_exist() -> None:
    codes = {rule.code for rule in all_rules()}
    assert {code for row in ROWS for code in row.rules} <= codes


def test_what_is_worth_setting_is_said_until_it_is_set() -> None:
    def of(name: str, environment: dict[str, str]) -> tuple[str, Health, bool]:
        [line] = [line for line in surroundings(environment) if line.what == name]
        return line.seen, line.health, bool(line.advice)

    for name in ("CUDA_LAUNCH_BLOCKING", "NCCL_DEBUG", "HYDRA_FULL_ERROR", "PYTHONHASHSEED", "OMP_NUM_THREADS"):
        assert of(name, {}) == ("not set", Health.NOTE, True)
        assert of(name, {name: "1"}) == ("1", Health.FINE, False)


def test_what_is_switched_on_in_torch_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    monkeypatch.setattr(torch, "is_anomaly_enabled", lambda: True)
    lines = {line.what: line for line in surroundings({})}
    assert (lines["deterministic"].seen, lines["deterministic"].health) == ("on", Health.FINE)
    assert (lines["anomaly mode"].seen, lines["anomaly mode"].health) == ("on", Health.NOTE)


def test_a_folder_that_cannot_be_written_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("debugkit.doctor.os.access", lambda *_: False)
    assert CliRunner().invoke(app, ["doctor"]).exit_code == 1


def test_a_driver_that_does_not_answer_is_broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "nvidia-smi"
    broken.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed because it could not communicate'\nexit 9\n")
    broken.chmod(0o755)
    monkeypatch.setattr("debugkit.doctor.shutil.which", lambda _: str(broken))
    [line] = [line for line in surroundings({}) if line.what == "driver"]
    assert (line.health, line.seen) == (Health.BROKEN, "NVIDIA-SMI has failed because it could not communicate")
