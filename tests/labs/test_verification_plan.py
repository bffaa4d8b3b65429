"""On how many seeds `lab dev verify` asks what of whom."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from labs.authoring import verify as verification
from labs.grading.catalog import Lab
from labs.grading.grades import Grade


def plan(lab: Lab, monkeypatch: pytest.MonkeyPatch, *, full: bool) -> dict[str, Counter[str]]:
    """Grades asked for, with outcomes and without, of each submission, known by the text it is made of."""
    asked: dict[str, Counter[str]] = {}
    names = {path.read_text(): path.stem for path in _submissions(lab)}

    def record(lab: Lab, files: dict[str, Any], *, kinds: tuple[str, ...], **_: Any) -> Grade:
        text = files["policy.py"]
        name = names.get(text if isinstance(text, str) else text.decode(), "hollow")
        asked.setdefault(name, Counter())["whole" if "outcome" in kinds else "structural"] += 1
        return Grade(lab.id, lab.slug, "failed", None, 0.0, 1)

    monkeypatch.setattr(verification, "grade", record)
    monkeypatch.setattr(verification, "diagnose", lambda *_, **__: {"findings": []})
    verification.verify(lab, None, full=full)
    return asked


def _submissions(lab: Lab) -> list[Path]:
    starter = lab.folder / "policy.py"
    solution = (lab.solution / "policy.py").rename(lab.solution / "solution.py")
    (lab.solution / "policy.py").write_text(solution.read_text())
    return [starter, solution, *lab.solution.glob("alternative_*.py"), *(lab.folder / "wrong_fixes").glob("*.py")]


@pytest.mark.parametrize(
    ("full", "right"), [(False, {"whole": 2, "structural": 3}), (True, {"whole": 5})], ids=["quick", "full"]
)
def test_structure_is_asked_on_five_seeds_and_outcomes_on_two_or_all(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, full: bool, right: dict[str, int]
) -> None:
    asked = plan(lab, monkeypatch, full=full)
    assert asked["policy"] == {"structural": 5}
    assert asked["solution"] == asked["alternative_addcmul"] == right
    for wrong in ("clamp", "drop_the_mean", "tuned_gain"):
        assert asked[wrong] == {"structural": 5}
