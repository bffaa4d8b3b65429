"""`[tool.debugkit]`: what it selects, ignores and accepts, and a sentence for every mistake in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from debugkit.cli import app
from debugkit.cli.settings import Settings, SettingsError, read_settings
from debugkit.finding import Severity

PROGRAM = """
import torch

def loss(model, batch):
    return (model(batch["x"]) - batch["y"]).square().mean()

def crossed():
    return {"model": torch.nn.Linear(3, 1), "batch": {"x": torch.ones(4, 3), "y": torch.ones(4)}, "loss_fn": loss}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose legacy part has a loss that broadcasts."""
    (tmp_path / "legacy").mkdir()
    (tmp_path / "legacy" / "built.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings(project: Path, table: str) -> None:
    (project / "pyproject.toml").write_text(table)


def check(*options: str) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(app, ["check", "legacy/built.py:crossed", "--format", "json", *options])
    return done.exit_code, json.loads(done.stdout)


def codes(report: dict[str, Any], key: str) -> list[str]:
    return [finding["code"] for finding in report[key]]


def test_select_and_ignore_come_from_the_table_and_an_option_replaces_them(project: Path) -> None:
    settings(project, '[tool.debugkit]\nselect = ["DK002", "dk1"]\nignore = { DK101 = "frozen on purpose" }\n')
    status, report = check()
    assert status == 1
    assert codes(report, "findings") == ["DK002"]
    assert "DK305" not in report["examined"]
    assert "Ignored: frozen on purpose" in [entry["why"] for entry in report["not_examined"]]
    status, report = check("--select", "DK107", "--ignore", "DK305")
    assert (status, report["examined"]) == (0, ["DK107"])


def test_findings_are_accepted_in_the_files_that_a_pattern_matches(project: Path) -> None:
    table = '[tool.debugkit]\nselect = ["DK002"]\n[tool.debugkit.per-path-ignores]\n'
    settings(project, table + '"other/*" = ["DK0"]\n')
    assert check()[0] == 1
    settings(project, table + '"legacy/*" = ["DK0"]\n')
    status, report = check()
    assert (status, codes(report, "findings"), codes(report, "known")) == (0, [], ["DK002"])


def test_the_least_severity_that_fails_comes_from_the_table(project: Path) -> None:
    assert read_settings(project) == Settings()
    settings(project, '[tool.debugkit]\nfail-on = "warning"\n')
    assert read_settings(project).fail_on is Severity.WARNING


def test_a_baseline_is_found_from_a_folder_below(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = project / "known.json"
    CliRunner().invoke(app, ["check", "legacy/built.py:crossed", "--format", "json", "--output", str(known)])
    settings(project, '[tool.debugkit]\nbaseline = "known.json"\nselect = ["DK002"]\n')
    monkeypatch.chdir(project / "legacy")
    done = CliRunner().invoke(app, ["check", "built.py:crossed", "--format", "json"])
    assert (done.exit_code, codes(json.loads(done.stdout), "known")) == (0, ["DK002"])


def test_the_nearest_table_counts(project: Path) -> None:
    settings(project, '[tool.debugkit]\nselect = ["DK1"]\n')
    (project / "legacy" / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    assert read_settings(project / "legacy").select == ["DK1"]
    (project / "legacy" / "pyproject.toml").write_text('[tool.debugkit]\nselect = ["DK2"]\n')
    assert read_settings(project / "legacy").select == ["DK2"]


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("[tool.debugkit\n", "cannot be read"),
        ("[tool]\ndebugkit = 3\n", "is a table with the keys select, ignore"),
        ('[tool.debugkit]\nselct = ["DK1"]\n', "has no key selct. It has select, ignore"),
        ('[tool.debugkit]\nselect = "DK1"\n', "select is a list of codes or prefixes, such as ['DK1', 'DK305']"),
        ('[tool.debugkit]\nselect = ["XK1"]\n', "No rule's code starts with 'XK1'"),
        ('[tool.debugkit]\nignore = { XK1 = "why" }\n', "No rule's code starts with 'XK1'"),
        ("[tool.debugkit]\nignore = { DK1 = 3 }\n", "a reason in ignore is a text"),
        ('[tool.debugkit]\nfail-on = "fatal"\n', "fail-on is error, warning, info; it is 'fatal'"),
        ("[tool.debugkit]\nbaseline = 3\n", "baseline is the path of a file; it is 3"),
        ('[tool.debugkit]\nper-path-ignores = ["DK1"]\n', "per-path-ignores is a table, pattern to codes"),
        ('[tool.debugkit.per-path-ignores]\n"a/*" = "DK1"\n', "per-path-ignores, a/* is a list of codes"),
    ],
)
def test_a_mistake_is_one_sentence_that_names_the_file(project: Path, table: str, told: str) -> None:
    settings(project, table)
    with pytest.raises(SettingsError, match=r"pyproject\.toml"):
        read_settings(project)
    done = CliRunner().invoke(app, ["check", "legacy/built.py:crossed"])
    assert done.exit_code == 2
    assert told in done.stderr
    assert done.stdout == ""


def test_explain_without_a_code_lists_the_rules() -> None:
    listed, rules = (CliRunner().invoke(app, [command]).stdout for command in ("explain", "rules"))
    assert listed == rules
    assert "DK002" in listed


def test_the_table_in_the_documentation_can_be_read(project: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "debugkit" / "command_line.md").read_text(encoding="utf-8")
    settings(project, page.partition("```toml\n")[2].partition("```")[0])
    found = read_settings(project)
    assert (found.fail_on, found.per_path_ignores) == (Severity.WARNING, {"legacy/*": ("DK5",)})
