"""`lab demo` is a test of the whole machine: it passes only if every stage goes as it must."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def test_the_demo_tells_the_whole_story(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "labs.cli", "demo"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    story = ["What a person sees", "✗ 03", "DK002", "+    ", "✓ 03", "Refused, diagnosed, mended, proven."]
    places = [done.stdout.index(part) for part in story]
    assert places == sorted(places)
    assert list(tmp_path.iterdir()) == []  # the workspace was thrown away


def test_the_demo_fails_where_a_stage_does_not_go_as_it_must(lab_command: Callable[..., tuple[int, str, str]]) -> None:
    # debugkit has nothing to find in the fixture lab's subject
    code, out, _ = lab_command("demo")
    assert code == 1
    assert "did not go as it must at: diagnosed." in " ".join(out.split())
