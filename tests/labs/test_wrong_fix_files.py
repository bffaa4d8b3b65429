"""A wrong fix replaces the first editable file, or the one that its header names."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from labs.authoring.wrong_fix_files import alternatives, as_submission, read_wrong_fixes
from labs.grading.catalog import Lab, find


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    made = msgspec.structs.replace(find("03"), editable=("train.py", "conf/config.yaml"))
    monkeypatch.setattr("labs.grading.catalog.LABS_ROOT", tmp_path / "labs")
    monkeypatch.setattr("labs.grading.catalog.SOLUTIONS_ROOT", tmp_path / "solutions")
    for folder in (made.folder, made.solution):
        (folder / "conf").mkdir(parents=True)
        (folder / "train.py").write_text("starter")
        (folder / "conf" / "config.yaml").write_text("a: 1")
    (made.folder / "wrong_fixes").mkdir()
    return made


def test_yaml_is_a_wrong_fix_too_and_names_what_it_replaces(lab: Lab) -> None:
    path = lab.folder / "wrong_fixes" / "other.yaml"
    path.write_text("# refused_by: test_it\n# why: because\n# replaces: conf/config.yaml\na: 2\n")
    (lab.folder / "wrong_fixes" / "notes.txt").write_text("no wrong fix")
    [wrong] = read_wrong_fixes(lab)
    assert (wrong.refused_by, wrong.why) == ("test_it", "because")
    files = as_submission(lab, path, lab.folder)
    assert files == {"train.py": b"starter", "conf/config.yaml": path.read_bytes()}


def test_without_a_name_the_first_editable_file_is_replaced(lab: Lab) -> None:
    path = lab.solution / "alternative_way.py"
    path.write_text("# why: as right\nmended")
    assert alternatives(lab) == [path]
    assert as_submission(lab, path, lab.solution)["train.py"] == path.read_bytes()


def test_a_name_that_no_learner_edits_is_refused(lab: Lab) -> None:
    path = lab.folder / "wrong_fixes" / "other.yaml"
    path.write_text("# replaces: conf/typo.yaml\n")
    with pytest.raises(ValueError, match=r"replaces conf/typo\.yaml, which is none of train\.py"):
        as_submission(lab, path, lab.folder)
