"""The command line: exit codes, one document on stdout, and a sentence for every mistake."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from child_processes import run
from debugkit.cli import app
from debugkit.rule import all_rules

PROGRAM = """
import torch
print("noise on stdout")

def crossed():
    print("more noise")
    loss = lambda model, batch: (model(batch["x"]) - batch["y"]).square().mean()
    return {"model": torch.nn.Linear(3, 1), "batch": {"x": torch.ones(4, 3), "y": torch.ones(4)}, "loss_fn": loss}

def healthy():
    return crossed() | {"batch": {"x": torch.ones(4, 3), "y": torch.ones(4, 1)}}

def pair():
    return torch.nn.Linear(3, 1), torch.ones(4, 3)

def raising():
    raise FileNotFoundError("weights.pt")

def misspelt():
    return crossed() | {"optimiser": None}

def headless():
    return {"batch": 1}

def number():
    return 3

not_a_function = 3
"""


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "built", raising=False)
    (tmp_path / "built.py").write_text(PROGRAM)
    return tmp_path / "built.py"


def debugkit(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_findings_give_1_and_their_absence_0() -> None:
    bad = debugkit("check", "built.py:crossed", "--select", "DK002")
    assert bad.exit_code == 1
    assert "silent-broadcast" in bad.stdout
    assert debugkit("check", "built:healthy", "--select", "DK002").exit_code == 0


def test_json_on_stdout_is_one_document_whatever_the_program_prints() -> None:
    command = [sys.executable, "-m", "debugkit.cli", "check", "built.py:crossed", "--select", "DK002", "-f", "json"]
    done = run(command)
    assert done.returncode == 1
    assert [finding["code"] for finding in json.loads(done.stdout)["findings"]] == ["DK002"]
    assert "noise on stdout" in done.stderr


@pytest.mark.parametrize(
    ("name", "parse"),
    [("sarif", json.loads), ("junit", ElementTree.fromstring), ("html", lambda text: text.index("</html>"))],
)
def test_every_format_is_written_to_a_file(name: str, parse, tmp_path: Path) -> None:
    result = debugkit("check", "built.py:crossed", "--select", "DK002", "-f", name, "-o", "out")
    assert result.exit_code == 1
    parse((tmp_path / "out").read_text())


def test_baseline_makes_known_findings_pass(tmp_path: Path) -> None:
    debugkit("check", "built.py:crossed", "--select", "DK002", "-f", "json", "-o", "known.json")
    again = debugkit("check", "built.py:crossed", "--select", "DK002", "--baseline", "known.json")
    assert again.exit_code == 0
    assert "1 finding known from the baseline" in again.stdout


def test_a_step_that_fails_gives_1_and_no_clean_report() -> None:
    result = debugkit("check", "built.py:pair", "--select", "DK002")
    assert result.exit_code == 1
    assert "loss_fn" in result.stdout
    assert "✗ Failed; no rule was examined." in result.stdout


def test_a_clean_report_is_short_and_verbose_lists_what_was_not_examined() -> None:
    short = debugkit("check", "built.py:healthy", "--select", "DK3").stdout
    assert len(short.splitlines()) <= 11  # the line that the program prints itself, and ten
    assert "Not examined: " in short
    assert "DK310" not in short
    for option in ("-v", "--verbose"):
        full = debugkit("check", "built.py:healthy", "--select", "DK3", option).stdout
        assert "DK310" in full
        assert "No data loader was given: pass dataloader=." in full
    debugkit("check", "built.py:healthy", "--select", "DK3", "-v", "-o", "report.txt")
    assert "DK310" in Path("report.txt").read_text(encoding="utf-8")


def test_text_is_what_the_report_itself_renders(monkeypatch: pytest.MonkeyPatch) -> None:
    from debugkit import Report

    monkeypatch.setenv("COLUMNS", "70")
    written = debugkit("check", "built.py:crossed", "--select", "DK0", "-f", "json").stdout
    report = Report.from_json(written[written.index("{") :])
    for option, verbose in (([], False), (["--verbose"], True)):
        shown = debugkit("check", "built.py:crossed", "--select", "DK0", *option).stdout
        assert report.to_text(verbose=verbose, width=70) in "\n".join(line.rstrip() for line in shown.splitlines())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["check", "built.py"], "names no function"),
        (["check", "nowhere.py:build"], "no file nowhere.py"),
        (["check", "no_such_module:build"], "No module named 'no_such_module'"),
        (["check", "built.py:absent"], "no function 'absent'"),
        (["check", "built.py:not_a_function"], "no function 'not_a_function'"),
        (["check", "built.py:raising"], "FileNotFoundError: weights.pt at "),
        (["check", "built.py:misspelt"], "'optimiser', which check() does not take"),
        (["check", "built.py:headless"], "without a model"),
        (["check", "built.py:number"], "returned int"),
        (["check", "built.py:pair", "--select", "E501"], "No rule's code starts with 'E501'"),
        (["check", "built.py:pair", "--baseline", "absent.json"], "not a debugkit report"),
        (["explain", "DK000"], "no rule DK000"),
        (["rules", "--select", "nonsense"], "No rule's code starts with"),
        (["run", "--select", "E501", "built.py"], "No rule's code starts with 'E501'"),
        (["replay", "nowhere"], "nowhere is not a snapshot"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_code_2(arguments: list[str], sentence: str) -> None:
    result = debugkit(*arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.output
    assert len(result.stderr.strip().splitlines()) == 1


TRAINING = """
import sys
import torch

class Distance(torch.nn.Module):
    def __init__(self, width=2):
        super().__init__()
        self.head = torch.nn.Linear(3, width)

    def forward(self, state):
        action = self.head(state)
        return (action - action.detach()).square().sum(-1).sqrt()

def build():
    return Distance()

def wider():
    return Distance(3)

def raising():
    raise FileNotFoundError("weights.pt")

def main(model, steps=3):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 3)).sum().backward()
        optimizer.step()

if __name__ == "__main__":
    main(Distance() if "broken" in sys.argv else torch.nn.Linear(3, 2))
    if "exit" in sys.argv:
        sys.exit(7)
    if "raise" in sys.argv:
        raise ValueError("planted")
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "training.py").write_text(TRAINING)
    monkeypatch.delitem(sys.modules, "training", raising=False)
    return tmp_path / "training.py"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [([], 0), (["exit"], 7), (["raise"], 1), (["broken"], 1), (["broken", "exit"], 7)],
)
def test_run_keeps_a_failing_scripts_exit_code_and_else_says_what_was_found(
    script: Path, arguments: list[str], code: int
) -> None:
    done = debugkit("run", "--select", "DK2", "training.py", *arguments)
    assert done.exit_code == code
    assert ("DK202" in done.stdout) == ("broken" in arguments)


@pytest.mark.parametrize(
    ("rank", "processes", "name"),
    [("0", "2", "kept.json"), ("1", "2", "kept.rank1.json"), ("0", "1", "kept.json"), ("", "2", "kept.json")],
)
def test_each_rank_that_torchrun_starts_writes_a_report_of_its_own(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: str, processes: str, name: str
) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", processes)
    done = debugkit("run", "--select", "DK2", "--format", "json", "--output", "kept.json", "training.py")
    assert done.exit_code == 0
    assert sorted(path.name for path in tmp_path.glob("*.json")) == [name]
    title = json.loads((tmp_path / name).read_text())["title"]
    assert title.startswith(f"training.py (rank {rank} of 2)" if rank and processes == "2" else "training.py, ")


@pytest.fixture
def snapshot(script: Path, tmp_path: Path) -> str:
    debugkit("run", "--select", "DK2", "--snapshots", "kept", "training.py", "broken")
    return str(sorted((tmp_path / "kept").iterdir())[0])


def test_replay_names_the_operation_in_the_model_that_build_returns(snapshot: str) -> None:
    done = debugkit("replay", snapshot, "--build", "training:build")
    assert done.exit_code == 1
    assert "SqrtBackward0" in done.stdout


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        ("training:wider", "is not the recorded one"),
        ("training:raising", "FileNotFoundError: weights.pt"),
        ("training:absent", "cannot be imported here"),
        ("broken_syntax:build", "cannot be imported here (SyntaxError"),
        ("training", "names no function"),
        (None, "--build"),
    ],
)
def test_a_replay_that_cannot_be_is_one_sentence(
    snapshot: str, tmp_path: Path, build: str | None, sentence: str
) -> None:
    (tmp_path / "broken_syntax.py").write_text("def build(:")
    result = debugkit("replay", snapshot, *(["--build", build] if build else []))
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_rules_lists_every_rule() -> None:
    text = debugkit("rules").stdout
    document = json.loads(debugkit("rules", "--json").stdout)
    assert [entry["code"] for entry in document["rules"]] == [rule.code for rule in all_rules()]
    assert all(f"{rule.code}  " in text and rule.name in text for rule in all_rules())


@pytest.mark.parametrize("code", [rule.code for rule in all_rules()])
def test_explain_shows_the_whole_page(code: str) -> None:
    rule = next(rule for rule in all_rules() if rule.code == code)
    assert rule.page in debugkit("explain", code.lower()).stdout


def test_doctor_names_versions_and_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING", raising=False)
    result = debugkit("doctor")
    assert result.exit_code == 0
    assert "✓  NCCL_DEBUG                INFO" in result.stdout
    assert "name the line" in result.stdout


@pytest.mark.slow
def test_doctor_lets_two_processes_talk() -> None:
    result = debugkit("doctor", "--distributed")
    assert result.exit_code == 0
    assert result.stdout.count("OK: gloo sums over 2 ranks") == 2
    assert "All 2 ranks reach one another." in result.stdout
