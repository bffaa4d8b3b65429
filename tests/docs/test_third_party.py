"""Every finding on a training script of a public repository has a reading, and the page shows both."""

from __future__ import annotations

import hashlib
import importlib
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from docs_modules import load

EXTENDED_DEPENDS_ON = ("debugkit", "docs", "tests/docs", "tests/third_party")

page_maker = load("_third_party")

RECORD = {
    "date": "2026-01-02",
    "torch": "2.9",
    "scripts": [
        {
            "name": "a",
            "steps": 3,
            "failure": "",
            "not_examined": [],
            "findings": [{"code": "DK308", "severity": "error", "place": "x.py:3", "message": "m"}],
        }
    ],
}
READING = {"script": "a", "code": "DK308", "place": "x.py:3", "kind": "true", "why": "Softmax twice."}


@pytest.fixture
def third_party(root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`module(name)` imports one of the modules of tests/third_party, which import each other by name."""
    monkeypatch.syspath_prepend(str(root / "tests" / "third_party"))
    for name in ("manifest", "fetch", "prepare", "run"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    def module(name: str) -> ModuleType:
        return importlib.import_module(name)

    yield module
    for name in ("manifest", "fetch", "prepare", "run"):
        sys.modules.pop(name, None)


def test_a_finding_is_shown_with_its_reading() -> None:
    assert page_maker.matched(RECORD, [READING]) == [("a", RECORD["scripts"][0]["findings"][0], READING)]


@pytest.mark.parametrize(
    ("readings", "problem"),
    [
        ([], "a: DK308 at 'x.py:3' has no reading"),
        ([READING, READING | {"code": "DK101"}], "the reading of DK101 at 'x.py:3' belongs to no finding"),
        ([READING | {"kind": "correct"}], "a: correct is no kind"),
    ],
)
def test_a_finding_without_a_reading_and_a_reading_without_a_finding_are_refused(
    readings: list[dict[str, str]], problem: str
) -> None:
    with pytest.raises(page_maker.ReadingError) as raised:
        page_maker.matched(RECORD, readings)
    assert problem in str(raised.value)


def test_every_script_has_its_recipes_and_is_in_the_record(root: Path, third_party: Any) -> None:
    scripts = third_party("manifest").scripts()
    recipes = third_party("prepare").RECIPES
    assert all(recipe in recipes for script in scripts for recipe in script.prepare)
    recorded = json.loads((root / "tests" / "third_party" / "record.json").read_text(encoding="utf-8"))
    assert {result["name"] for result in recorded["scripts"]} == {script.name for script in scripts}


def test_fetch_copies_a_file_and_refuses_one_that_differs(tmp_path: Path, third_party: Any) -> None:
    manifest, fetch = third_party("manifest"), third_party("fetch")
    source = tmp_path / "from" / "o__r" / "train.py"
    source.parent.mkdir(parents=True)
    source.write_text("print(1)\n", encoding="utf-8")
    right = hashlib.sha256(source.read_bytes()).hexdigest()

    def script(sha256: str) -> Any:
        item = manifest.Source("o__r/train.py", "https://example.invalid/train.py", sha256)
        return manifest.Script("n", "o/r", "c", "MIT", "train.py", "o__r/train.py", (item,))

    assert fetch.fetch(script(right), tmp_path / "to", tmp_path / "from") == []
    assert (tmp_path / "to" / "o__r" / "train.py").is_file()
    shutil.rmtree(tmp_path / "to")
    assert "another SHA-256" in fetch.fetch(script("0" * 64), tmp_path / "to", tmp_path / "from")[0]
    assert not (tmp_path / "to" / "o__r" / "train.py").exists()


def test_fetch_refuses_a_folder_inside_the_repository(root: Path, third_party: Any) -> None:
    assert third_party("fetch").main([str(root / "scripts")]) == 2


@pytest.mark.extended
def test_the_runner_writes_down_what_was_found(tmp_path: Path, third_party: Any) -> None:
    manifest, run = third_party("manifest"), third_party("run")
    (tmp_path / "train.py").write_text(
        "import torch\n"
        "model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Softmax(dim=1))\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(8):\n"
        "    loss = torch.nn.functional.cross_entropy(model(torch.randn(8, 4)), torch.randint(3, (8,)))\n"
        "    optimizer.zero_grad()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n",
        encoding="utf-8",
    )
    result = run.one(manifest.Script("n", "o/r", "c", "MIT", "train.py", "train.py", ()), tmp_path)
    assert result["steps"] == 8
    assert [(finding["code"], finding["place"]) for finding in result["findings"]] == [("DK308", "train.py:5")]


@pytest.mark.parametrize(
    ("steps", "failure", "known", "status"),
    [
        (8, "", {}, 0),
        (2, "The script raised RuntimeError: planted.", {}, 0),
        (0, "The script raised ModuleNotFoundError: No module named 'h5py'.", {}, 1),
        (0, "No report. []", {}, 1),
        (0, "Interrupted when its time was over.", {}, 1),
        (0, "The script raised AttributeError: TPU.", {"no_step": "AttributeError: TPU"}, 0),
        (0, "The script raised ModuleNotFoundError: No module named 'h5py'.", {"no_step": "AttributeError: TPU"}, 1),
        (0, "Not run: it needs a simulator.", {"not_run": "it needs a simulator."}, 0),
    ],
)
def test_the_runner_fails_if_a_script_did_not_run(
    tmp_path: Path,
    third_party: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    steps: int,
    failure: str,
    known: dict[str, str],
    status: int,
) -> None:
    manifest, run = third_party("manifest"), third_party("run")
    listed = (manifest.Script("n", "o/r", "c", "MIT", "train.py", "train.py", (), **known),)
    result = {"name": "n", "steps": steps, "seconds": 0, "findings": [], "not_examined": [], "failure": failure}
    monkeypatch.setattr(run, "scripts", lambda: listed)
    monkeypatch.setattr(run, "one", lambda *_: result)
    monkeypatch.setattr(run, "RECORD", tmp_path / "record.json")
    monkeypatch.setattr(run.signal, "signal", lambda *_: None)
    assert run.main([str(tmp_path)]) == status
    assert ("Did not run: n" in capsys.readouterr().out) == bool(status)
    assert json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))["scripts"] == [result]


@pytest.mark.extended
def test_a_script_whose_import_fails_did_not_run(tmp_path: Path, third_party: Any) -> None:
    manifest, run = third_party("manifest"), third_party("run")
    (tmp_path / "train.py").write_text("import a_module_that_is_nowhere\n", encoding="utf-8")
    script = manifest.Script("n", "o/r", "c", "MIT", "train.py", "train.py", ())
    result = run.one(script, tmp_path)
    assert "ModuleNotFoundError" in result["failure"]
    assert not run.as_expected(script, result)
