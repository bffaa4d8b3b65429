"""Pages made from code say what the code says, and the check notices when they do not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def generate(docs: Path, *options: str, root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, docs / "_generate.py", *options],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def copied_docs(root: Path, tmp_path: Path) -> Path:
    """A copy of docs/ that may be spoilt."""
    docs = tmp_path / "docs"
    shutil.copytree(root / "docs", docs, ignore=shutil.ignore_patterns("__pycache__"))
    return docs


def test_generated_pages_are_true(root: Path) -> None:
    checked = generate(root / "docs", "--check", root=root)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("spoil", ["edited", "missing", "orphaned"])
def test_the_check_refuses_a_page_that_is_not_true_and_the_command_mends_it(
    copied_docs: Path, root: Path, spoil: str
) -> None:
    page = copied_docs / "debugkit" / "rules" / "index.md"
    if spoil == "edited":
        page.write_text(page.read_text(encoding="utf-8") + "One more line.\n", encoding="utf-8")
    elif spoil == "missing":
        page.unlink()
    else:
        page = page.with_name("dk999_no_such_rule.md")
        page.write_text("# DK999\n", encoding="utf-8")
    refused = generate(copied_docs, "--check", root=root)
    assert refused.returncode == 1
    assert page.name in refused.stdout
    assert generate(copied_docs, root=root).returncode == 0
    assert generate(copied_docs, "--check", root=root).returncode == 0


def test_an_unknown_option_is_refused_with_the_usage(root: Path) -> None:
    refused = generate(root / "docs", "--chekc", root=root)
    assert refused.returncode == 2
    assert "--chekc" in refused.stderr
    assert "Traceback" not in refused.stderr
