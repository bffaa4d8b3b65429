"""The published page lists the programs and the faults that there are, and the check notices when it does not."""

from __future__ import annotations

from pathlib import Path

from faults import measure
from faults.first_attempts import ALARMS, REAL_FAULTS, TOPICS
from healthy.program import all_programs


def test_page_lists_every_program_and_every_fault() -> None:
    assert measure.main(["--check"]) == 0


def test_check_refuses_a_page_without_one_of_the_faults(tmp_path: Path) -> None:
    page = tmp_path / "accuracy.md"
    lines = measure.PAGE.read_text(encoding="utf-8").splitlines(keepends=True)
    gone = next(number for number, line in enumerate(lines) if line.startswith("| DK105 |"))
    page.write_text("".join(lines[:gone] + lines[gone + 1 :]), encoding="utf-8")
    assert measure.main(["--check", "--page", str(page)]) == 1


def test_a_missed_fault_and_a_false_alarm_are_published_as_such() -> None:
    silences = [measure.Silence("quiet", "loops", ()), measure.Silence("loud", "loops", ("DK305",))]
    detections = [measure.Detection("DK105", "cut", "quiet", False, "missed")]
    text = measure.page(silences, detections, 1.0)
    assert "**1 of 2** correct but unusual programs" in text
    assert "**0 of 1** planted faults" in text
    assert "| DK105 | `cut` | `quiet` | missed |" in text


def test_first_attempts_are_published_and_belong_to_programs_that_there_are() -> None:
    known = {name: build.__module__.rpartition(".")[2] for name, build in all_programs().items()}
    assert {*ALARMS, *REAL_FAULTS} <= known.keys()
    assert {known[name] for name in (*ALARMS, *REAL_FAULTS)} <= set(TOPICS)
    text = measure.page([measure.Silence(name, known[name], ()) for name in known], [], 1.0)
    assert f"{len(ALARMS)} of them raised a false alarm at first" in text
    assert all(f"| `{name}` | {what} |" in text for name, what in ALARMS.items())
