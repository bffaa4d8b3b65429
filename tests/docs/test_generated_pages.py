"""Pages made from code say what the code says, and the check notices when they do not."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from child_processes import run
from docs_modules import english, load

EXTENDED_DEPENDS_ON = (
    "debugkit",
    "docs",
    "labs",
    "solutions",
    "tests/docs",
    "tests/injection",
    "tests/third_party",
    "*.md",
)

Generate = Callable[..., int]


def loaded(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copied_docs(root: Path, tmp_path: Path) -> Path:
    """A copy of docs/ to edit, and of the record that a page is made from."""
    docs = tmp_path / "docs"
    shutil.copytree(root / "docs", docs, ignore=shutil.ignore_patterns("__pycache__", "assets", "*.png", "*.svg"))
    record = root / "tests" / "third_party"
    shutil.copytree(
        record, tmp_path / "tests" / "third_party", ignore=shutil.ignore_patterns("stand_ins*", "__pycache__")
    )
    for name in ("record.json", "readings.toml"):
        (tmp_path / "tests" / "injection").mkdir(exist_ok=True)
        shutil.copy(root / "tests" / "injection" / name, tmp_path / "tests" / "injection" / name)
    return docs


@pytest.fixture
def generate(copied_docs: Path, monkeypatch: pytest.MonkeyPatch) -> Generate:
    """`python docs/_generate.py` of the copy, in this process."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    load("_language")  # the copy's modules import it
    loaded(copied_docs / "_tables.py", monkeypatch)
    loaded(copied_docs / "_errors.py", monkeypatch)
    loaded(copied_docs / "_rule_pages.py", monkeypatch)
    loaded(copied_docs / "_third_party.py", monkeypatch)
    loaded(copied_docs / "_injection.py", monkeypatch)
    module = loaded(copied_docs / "_generate.py", monkeypatch)
    return lambda *options: module.main(options)


@pytest.mark.extended
def test_generated_pages_are_true(root: Path) -> None:
    checked = run([sys.executable, root / "docs" / "_generate.py", "--check"], cwd=root)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.extended
def test_the_check_names_each_page_that_is_not_true_and_the_command_fixes_them(
    copied_docs: Path, generate: Generate, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = copied_docs / "debugkit" / "rules"
    edited, orphaned = rules / "index.md", rules / "dk999_no_such_rule.md"
    [missing] = english(rules.glob("dk001_*.md"))
    before = {page: page.read_bytes() for page in (edited, missing)}
    edited.write_bytes(before[edited] + b"One more line.\n")
    missing.unlink()
    orphaned.write_text("# DK999\n", encoding="utf-8")
    assert generate("--check") == 1
    said = capsys.readouterr().out
    assert [page.name for page in (edited, missing, orphaned) if page.name not in said] == []
    assert generate() == 0
    assert {page: page.read_bytes() for page in before} == before
    assert not orphaned.exists()


def test_an_unknown_option_is_refused_with_the_usage(generate: Generate, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate("--chekc") == 2
    assert "--chekc" in capsys.readouterr().err
