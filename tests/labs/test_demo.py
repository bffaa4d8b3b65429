"""`lab demo` tests the whole installation: it exits with 0 only if every stage gives the expected result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from child_processes import run

EXTENDED_DEPENDS_ON = ("debugkit", "labs", "solutions", "tests/labs")

pytestmark = pytest.mark.slow


@pytest.mark.extended
def test_the_demo_shows_every_stage_in_order(tmp_path: Path, lab_process: tuple[list[str], dict[str, Any]]) -> None:
    command, options = lab_process
    done = run([*command, "demo"], cwd=tmp_path, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    parts = ["The symptom", "✗ 03", "DK002", "+    ", "✓ 03", "Refused, diagnosed, fixed, passed."]
    places = [done.stdout.index(part) for part in parts]
    assert places == sorted(places)
    assert list(tmp_path.iterdir()) == []  # the temporary workspace is gone


@pytest.mark.extended
def test_the_demo_fails_if_a_stage_does_not_give_the_expected_result(
    lab_command: Callable[..., tuple[int, str, str]],
) -> None:
    # debugkit has nothing to find in the fixture lab's subject
    code, out, _ = lab_command("demo")
    assert code == 1
    assert "did not give the expected result at: debugkit finds the place." in " ".join(out.split())
