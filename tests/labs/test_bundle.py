"""A course pack: it grades, and nothing in it tells a solution."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from child_processes import run
from labs.classroom import bundle
from labs.classroom.bundle import NOT_BUNDLED, added_lines, told_lines, write_bundle
from labs.classroom.bundle_files import packed_checks, short_hints
from labs.grading.answers import ANSWERS, PACKED, unpacked
from labs.grading.catalog import Lab, all_labs, load
from labs.grading.errors import UsageError
from labs.learner.former_names import FORMER_NAMES
from labs.learner.hints import parse
from labs.learner.pack import Pack
from labs.learner.paths import PATHS

EXTENDED_DEPENDS_ON = ("debugkit", "labs", "solutions", "tests/labs")

LabCommand = Callable[..., tuple[int, str, str]]
COURSE = Pack("course", "1", solutions=False)
LONG = 30
"""A line of this length that a solution adds is not there by chance."""


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course pack with every lab, and with all hints."""
    out = tmp_path_factory.mktemp("bundle") / "course"
    write_bundle(out, all_labs(), pack=COURSE, hints=3)
    return out


def lab_of(pack: Path, at: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`lab ARGS…` as the pack has it, in the folder `at`, without the packages of this checkout."""
    environment = {name: value for name, value in os.environ.items() if name not in ("VLA_LABS_ROOT", "PYTHONPATH")}
    # -P: the current folder is not on the path either.
    command = [sys.executable, "-P", "-m", "labs.cli", *arguments]
    return run(command, cwd=at, env=environment | {"PYTHONPATH": str(pack), "COLUMNS": "100"})


@pytest.mark.extended
def test_a_course_pack_grades_and_has_no_solution(lab: Lab, tmp_path: Path) -> None:
    pack = tmp_path / "course"
    write_bundle(pack, [lab], pack=COURSE, hints=2)
    assert "overshoots" in lab_of(pack, tmp_path, "list").stdout
    (lab.folder.parent / PATHS).write_text('[all]\ntitle = "A"\nabout = "B."\nlabs = ["03", "91"]\n', encoding="utf-8")
    with_paths = tmp_path / "with_paths"
    write_bundle(with_paths, [lab], pack=COURSE, hints=2)
    assert "0 of 1 passed" in lab_of(with_paths, tmp_path, "list", "--path", "all").stdout
    started = lab_of(pack, tmp_path, "start", "03")
    assert str(pack / "labs" / lab.name / "lesson.md") in started.stdout.replace("\n", "")
    hints = [lab_of(pack, tmp_path, "hint", "03").stdout for _ in range(3)]
    assert "one action you can follow by hand" in hints[0]
    assert "not part of this course pack" in hints[2]

    refused = lab_of(pack, tmp_path, "grade", "03")
    assert refused.returncode == 1, refused.stderr
    assert "actions come out in the robot's units" in refused.stdout
    assert "lab diagnose" not in refused.stdout
    for command in (("solution", "03", "--give-up"), ("diagnose", "03"), ("demo",)):
        said = lab_of(pack, tmp_path, *command)
        assert said.returncode == 2
        assert said.stderr.startswith("lab: The course pack course has no ")
        assert len(said.stderr.splitlines()) == 1

    attempt = tmp_path / "workspace" / lab.name / "policy.py"
    attempt.write_bytes((lab.solution / "policy.py").read_bytes())
    passed = lab_of(pack, tmp_path, "grade", "03")
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert "lab solution" not in passed.stdout


@pytest.mark.extended
@pytest.mark.slow
def test_a_real_lab_is_refused_with_its_question(course: Path, tmp_path: Path) -> None:
    done = lab_of(course, tmp_path, "grade", "12")
    assert done.returncode == 1, done.stderr
    assert "answer: not given yet" in done.stdout


def test_no_line_of_a_solution_is_in_the_pack(course: Path) -> None:
    written = {
        line.strip(): path
        for path in course.rglob("*")
        if path.is_file() and path.name != "policy.py"
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
    }
    for lab in all_labs():
        assert list(told_lines(lab, course / "labs" / lab.name)) == []
        lines = [line for line in added_lines(lab) if len(line) >= LONG and not line.startswith(("from ", "import "))]
        elsewhere = {line: written[line] for line in lines if line in written}
        assert not elsewhere, lab.id


def test_every_solution_adds_lines_that_would_be_found() -> None:
    assert [lab.id for lab in all_labs() if not added_lines(lab)] == []


def test_what_is_made_from_the_solution_stays_behind(course: Path) -> None:
    names = {path.name for path in course.rglob("*")}
    assert not names & {*NOT_BUNDLED, ANSWERS, "why.md", "verified.json", "solutions", "classroom", "verify.py"}
    assert not [name for name in names if name.endswith(".diff")]
    slugs = {name.split("_", 1)[1] for former in FORMER_NAMES.values() for name in former}
    text = "\n".join(path.read_text(encoding="utf-8") for path in (course / "labs").rglob("*.py"))
    assert not [slug for slug in slugs if f'_{slug}"' in text]
    for lab in all_labs():
        declared = load(course / "labs" / lab.name)
        assert (declared.rules, declared.notes_topics, declared.anchor.urls) == ((), (), ())
        assert (declared.seeds, declared.editable, declared.questions) == (lab.seeds, lab.editable, lab.questions)


def test_a_lesson_ends_before_the_diagnosis(course: Path) -> None:
    for lab in all_labs():
        lesson = (course / "labs" / lab.name / "lesson.md").read_text(encoding="utf-8")
        assert "## Measure" in lesson
        assert "## Diagnose" not in lesson
        assert "??? fix" not in lesson
        assert "--8<--" not in lesson


def test_answers_are_there_and_cannot_be_read_by_chance(course: Path) -> None:
    (asked,) = [lab for lab in all_labs() if lab.id == "12"]
    stored = (course / "labs" / asked.name / PACKED).read_bytes()
    answers = (asked.solution / ANSWERS).read_bytes()
    assert unpacked(stored) == answers
    assert answers.split(b"=")[0].strip() not in stored


def test_a_lab_whose_files_quote_its_solution_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (lab,) = [lab for lab in all_labs() if lab.id == "12"]  # its reference is written like the fix
    monkeypatch.setattr(bundle, "packed_checks", lambda source: source.decode())
    with pytest.raises(UsageError, match=r"checks\.py has a line of the solution of lab 12"):
        write_bundle(tmp_path / "course", [lab], pack=COURSE, hints=2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", [".zip", ".tar.gz"])
def test_an_archive_has_one_folder(lab_command: LabCommand, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"robots{ending}"
    code, said, _ = lab_command("class", "bundle", str(out), "--labs", "03")
    assert code == 0
    assert "1 lab, " in said
    if ending == ".zip":
        with zipfile.ZipFile(out) as archive:
            names = archive.namelist()
    else:
        with tarfile.open(out) as archive:
            names = archive.getnames()
    assert {name.split("/")[0] for name in names} == {"robots"}
    assert "robots/pack.toml" in names
    code, _, refused = lab_command("class", "bundle", str(out), "--labs", "03")
    assert code == 2
    assert "exists, and nothing was written" in refused
    code, _, refused = lab_command("class", "bundle", str(tmp_path / "other"), "--name", "No Name")
    assert code == 2
    assert "not a valid pack" in refused


def test_hints_after_the_last_one_say_so_and_no_hint_names_a_missing_command() -> None:
    whole = (
        "## 1 Where\n\nHere.\n\n## 2 What\n\nCount them. `lab diagnose 03` counts\nthem too.\n\n## 3 Wrong\n\nIt is.\n"
    )
    first, second, third = parse(short_hints(whole, 2), "hints")
    assert (first.text, second.text) == ("Here.", "Count them.")
    assert "not part of this course pack" in third.text
    assert parse(short_hints(whole, 3), "hints")[2].text == "It is."


def test_packed_checks_are_the_checks() -> None:
    source = "from __future__ import annotations\nfaults: int = 3\n"
    namespace: dict[str, object] = {"__file__": "checks.py"}
    exec(packed_checks(source.encode()), namespace)
    assert namespace["faults"] == 3
    assert "faults" not in packed_checks(source.encode())


def test_the_catalogue_of_a_pack_has_no_text_of_a_lab(tmp_path: Path) -> None:
    lab = next(one for one in all_labs() if one.id == "12")
    write_bundle(tmp_path / "pack", [lab], pack=Pack("course", "1", solutions=False), hints=2)
    catalogue = (tmp_path / "pack" / "labs" / "locale" / "ko.po").read_text(encoding="utf-8")
    assert "Reproduce the symptom with your copy of a lab." in catalogue
    told = [hint.text for hint in parse((lab.folder / "hints.md").read_text(encoding="utf-8"), "hints.md")]
    assert not [text for text in (lab.symptom, lab.title, *told) if text.splitlines()[0] in catalogue]
