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
    """A copy of docs/ to edit."""
    docs = tmp_path / "docs"
    shutil.copytree(root / "docs", docs, ignore=shutil.ignore_patterns("__pycache__", "assets", "*.png", "*.svg"))
    return docs


@pytest.fixture
def generate(copied_docs: Path, monkeypatch: pytest.MonkeyPatch) -> Generate:
    """`python docs/_generate.py` of the copy, in this process."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    loaded(copied_docs / "_tables.py", monkeypatch)
    loaded(copied_docs / "_errors.py", monkeypatch)
    loaded(copied_docs / "_rule_pages.py", monkeypatch)
    module = loaded(copied_docs / "_generate.py", monkeypatch)
    return lambda *options: module.main(options)


def test_generated_pages_are_true(root: Path) -> None:
    checked = run([sys.executable, root / "docs" / "_generate.py", "--check"], cwd=root)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("spoil", ["edited", "missing", "orphaned"])
def test_the_check_refuses_a_page_that_is_not_true_and_the_command_fixes_it(
    copied_docs: Path, generate: Generate, capsys: pytest.CaptureFixture[str], spoil: str
) -> None:
    page = copied_docs / "debugkit" / "rules" / "index.md"
    if spoil == "edited":
        page.write_text(page.read_text(encoding="utf-8") + "One more line.\n", encoding="utf-8")
    elif spoil == "missing":
        page.unlink()
    else:
        page = page.with_name("dk999_no_such_rule.md")
        page.write_text("# DK999\n", encoding="utf-8")
    assert generate("--check") == 1
    assert page.name in capsys.readouterr().out
    assert generate() == 0
    assert generate("--check") == 0


def test_an_unknown_option_is_refused_with_the_usage(generate: Generate, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate("--chekc") == 2
    assert "--chekc" in capsys.readouterr().err
