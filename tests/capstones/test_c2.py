"""The change of capstone c2 can be applied, its faults are where the checks look, and a bad review gets a sentence."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from labs.authoring.lab_module import load_module
from labs.capstones.capstone import find_capstone
from labs.grading.catalog import Lab


@pytest.fixture(scope="module")
def capstone() -> Lab:
    found = find_capstone("c2")
    assert found is not None
    return found


def test_change_applies_and_every_file_compiles(capstone: Lab, tmp_path: Path) -> None:
    handout = capstone.folder / "handout"
    for file in (handout / "before").glob("*.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    subprocess.run(["git", "apply", "-p1", str(handout / "change.diff")], cwd=tmp_path, check=True)
    for file in tmp_path.glob("*.py"):
        compile(file.read_text(), file.name, "exec")
        assert file.read_bytes() != (handout / "before" / file.name).read_bytes()


def test_faults_are_where_the_checks_look(capstone: Lab) -> None:
    checks = load_module(capstone.folder / "checks.py")
    shown = checks.new_lines((capstone.folder / "handout" / "change.diff").read_text())
    places = {(fault.file, checks.lines_of(fault, shown).start) for fault in checks.FAULTS}
    assert places == {("data.py", 27), ("model.py", 34), ("train.py", 37), ("train.py", 47), ("evaluate.py", 46)}
    lines = [(fault.file, line) for fault in checks.FAULTS for line in checks.lines_of(fault, shown)]
    assert len(lines) == len(set(lines))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("decision = ", "review.toml is not valid TOML: "),
        ('decision = "yes"', "`decision` in review.toml is 'yes'; it is one of: merge, request_changes."),
        ("verdict = 1", "review.toml has the key `verdict`; it takes `decision` and tables `[[refused]]`."),
        ("refused = 3", "Each refused place in review.toml is a table of its own"),
        ("[[refused]]\nline = 3", "Table 1 of `[[refused]]` in review.toml has no `file`."),
        ('[[refused]]\nfile = "data.py"\nline = "27"\nwhy = "leak"', "has the line '27'; it is a number"),
        ('[[refused]]\nfile = "dta.py"\nline = 27\nwhy = "leak"', "names the file 'dta.py'; the change has: "),
        ('[[refused]]\nfile = "data.py"\nline = 27\nwhy = "leek"', "has the `why` 'leek'; it is one of: "),
        ('[[refused]]\nfile = "data.py"\nline = 27\nwhy = "leak"\nwhere = 1', "has the key `where`; it takes "),
        ("[[refused]]\n" * 41, "review.toml refuses 41 places; name the few that must change."),
    ],
)
def test_bad_review_gets_a_sentence(capstone: Lab, tmp_path: Path, text: str, sentence: str) -> None:
    probe = load_module(capstone.folder / "probe.py")
    path = tmp_path / "review.toml"
    path.write_text(text)
    with pytest.raises(probe.ReviewError) as raised:
        probe.review(SimpleNamespace(review=path))
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)
