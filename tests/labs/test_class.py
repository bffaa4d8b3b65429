"""`lab class`: exports of course platforms, results that survive a kill, signatures, and pages that are harmless."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import yaml

from child_processes import HANG_S, run, started
from labs.classroom import grade_class
from labs.classroom.entries import LARGEST_FILE_BYTES, entries_of
from labs.classroom.key import read_key, seed_for
from labs.classroom.part import Part
from labs.classroom.results import Result, ResultsFile, read_results
from labs.classroom.similarity import near_identical
from labs.classroom.submissions import submissions_of
from labs.classroom.tables import as_csv, as_html
from labs.classroom.write_templates import FILES, PLATFORMS
from labs.grading.catalog import Lab, all_labs
from labs.grading.errors import UsageError

EXTENDED_DEPENDS_ON = ("debugkit", "labs", "solutions", "tests/labs")

LabCommand = Callable[..., tuple[int, str, str]]


@pytest.fixture
def export(tmp_path: Path) -> Path:
    folder = tmp_path / "export"
    folder.mkdir()
    return folder


def solved(lab: Lab) -> dict[str, str]:
    return {name: (lab.solution / name).read_text(encoding="utf-8") for name in lab.editable}


def unsolved(lab: Lab) -> dict[str, str]:
    return {name: (lab.folder / name).read_text(encoding="utf-8") for name in lab.editable}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def zipped(path: Path, files: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def found(folder: Path, lab: Lab) -> dict[str, dict[str, bytes]]:
    return {entry.student: submissions_of(entry, [lab])[0].files for entry in entries_of(folder)}


def result(student: str = "Jane", **changes: object) -> Result:
    known = {"lab": "03", "verdict": "failed", "reason": "", "wrong_fix": None, "failed_checks": (), "seconds": 1.0}
    rest = {"seed": 1, "submission": "a", "content": "b", "graded_at": "2026-01-01T00:00:00+00:00"}
    return Result(student=student, **(known | rest | changes))  # type: ignore[arg-type]


def test_a_submission_is_found_as_each_platform_exports_it(export: Path, lab: Lab) -> None:
    text = {"policy.py": "answer = 1\n"}
    write(export / "Jane Doe_12345_assignsubmission_file_", text)
    write(export / "debugging-lab-kim" / "workspace" / lab.name, text)
    write(export, {"leekim_LATE_11_22_policy-1.py": text["policy.py"]})
    zipped(export / "park.zip", {f"somewhere/{lab.name}/policy.py": text["policy.py"]})
    zipped(export / "choi_33_44_lab03.zip", text)
    write(export / "nobody", {"readme.md": "hello"})
    files = found(export, lab)
    assert {student for student, there in files.items() if there == {"policy.py": b"answer = 1\n"}} == {
        "Jane Doe (12345)",
        "debugging-lab-kim",
        "leekim (11)",
        "park",
        "choi (33)",
    }
    assert files["nobody"] == {}


def test_a_resubmitted_file_counts_and_git_history_and_links_do_not(export: Path, lab: Lab) -> None:
    folder = write(
        export / "kim", {"policy.py": "old = 1\n", "policy-2.py": "new = 1\n", ".git/policy.py": "history\n"}
    )
    (folder / "outside").symlink_to(export.parent)
    assert found(export, lab)["kim"] == {"policy.py": b"new = 1\n"}


def test_two_copies_are_a_sentence_and_not_a_guess(export: Path, lab: Lab) -> None:
    write(export / "kim" / "a" / lab.name, {"policy.py": "1\n"})
    write(export / "kim" / "b" / lab.name, {"policy.py": "2\n"})
    [entry] = entries_of(export)
    assert "There are several copies of lab 03" in submissions_of(entry, [lab])[0].problem


def test_an_archive_cannot_write_outside_or_fill_the_memory(export: Path, lab: Lab) -> None:
    zipped(export / "kim.zip", {"../policy.py": "outside\n", "/etc/policy.py": "0" * (4 * LARGEST_FILE_BYTES)})
    (export / "lee.zip").write_text("not a zip file")
    entries = {entry.student: entry for entry in entries_of(export)}
    [kept] = entries["kim"].files
    assert len(entries["kim"].read(kept)) == LARGEST_FILE_BYTES + 1
    assert "not a zip file that can be read" in entries["lee"].problem
    assert sorted(path.name for path in export.parent.rglob("policy.py") if "export" in str(path)) == []


class ThisProcess:
    """In place of a pool of processes: does each piece of work when it is submitted."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> ThisProcess:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(work(*arguments))
        return done

    def shutdown(self, **_: object) -> None:
        pass


@pytest.fixture
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grades without a pool; that its processes may die is another test's."""
    monkeypatch.setattr(grade_class, "ProcessPoolExecutor", ThisProcess)


@pytest.mark.slow
def test_a_class_is_graded_resumed_and_signed(
    export: Path, lab: Lab, lab_command: LabCommand, no_processes: None, tmp_path: Path
) -> None:
    write(export / "solved", solved(lab))
    write(export / "unsolved", unsolved(lab))
    write(export / "crashes", {"policy.py": "import os\nos._exit(3)\n"})
    (export / "broken.zip").write_text("not a zip file")
    (export / "empty").mkdir()
    grade = ("class", "grade", str(export), "03", "--out", str(tmp_path / "out"), "--jobs", "2")
    code, shown, _ = lab_command(*grade)
    assert code == 0, shown
    document = json.loads((tmp_path / "out" / "results.json").read_text())
    verdicts = {one["student"]: one["verdict"] for one in document["results"]}
    expected = {"solved": "passed", "unsolved": "failed", "crashes": "failed", "broken": "failed", "empty": "missing"}
    assert verdicts == expected
    assert len({one["seed"] for one in document["results"]}) == len(expected), "each learner has a seed of their own"
    rows = csv.DictReader((tmp_path / "out" / "results.csv").read_text(encoding="utf-8").splitlines())
    assert {row["student"]: row["verdict"] for row in rows} == expected

    write(export / "unsolved", solved(lab))
    code, shown, _ = lab_command(*grade, "--json")
    again = {one["student"]: one for one in json.loads(shown)["results"]}
    assert again["unsolved"]["verdict"] == "passed"
    before = {one["student"]: one["graded_at"] for one in document["results"]}
    assert again["solved"]["graded_at"] == before["solved"], "what is known is not graded again"
    assert lab_command("class", "check", str(tmp_path / "out"))[0] == 0
    each_change_is_found(lab_command, tmp_path / "out")

    lines = tmp_path / "out" / "results.jsonl"
    lines.write_text(lines.read_text().replace('"missing"', '"passed"'))
    code, shown, said = lab_command("class", "check", str(tmp_path / "out"))
    assert code == 1
    assert "empty, lab 03: in results.jsonl, it does not have this key's signature" in shown
    assert "1 of 5 results were changed, or have another key's signature" in said
    lab_command(*grade)
    assert read_results(lines)["empty", "03"].verdict == "missing", "a changed result is graded again"


CHANGES = {
    "results.jsonl": [
        ('"failed"', '"passed"', "in results.jsonl, it does not have this key's signature"),
        (r'\{"student": "empty".*\n', "", "empty, lab 03: it is missing from results.jsonl"),
    ],
    "results.json": [
        ('"failed"', '"passed"', "in results.json, it does not have this key's signature"),
        (r'\{\s*"student": "broken"[^}]*\},\s*', "", "broken, lab 03: it is missing from results.json"),
        (r'"not_read": \[\]', '"not_read": ["x.py"]', "results.json is not as `lab class grade` wrote it"),
        (r"^\{", "", "crashes, lab 03: it is missing from results.json"),
    ],
    "results.csv": [
        ("crashes,03,failed", "crashes,03,passed", "crashes, lab 03: in results.csv, it is not the signed result"),
        (r"empty,03.*\r\n", "", "empty, lab 03: it is missing from results.csv"),
        (r"(empty),(03.*\r\n)", r"\1,\2eve,\2", "eve, lab 03: in results.csv, it was added"),
        (r"(empty,03.*\r\n)", r"\1\1", "empty, lab 03: in results.csv, it was added"),
        ("verdict", "grade", "results.csv is not as `lab class grade` wrote it"),
    ],
    "index.html": [("✗ failed", "✓ passed", "index.html is not as `lab class grade` wrote it")],
}
"""For each file: a pattern, what replaces it, and what `lab class check` says."""


def each_change_is_found(lab_command: LabCommand, out: Path) -> None:
    for name, changes in CHANGES.items():
        before = (out / name).read_bytes()
        for pattern, replacement, told in changes:
            changed = re.sub(pattern, replacement, before.decode())
            assert changed.encode() != before, pattern
            (out / name).write_bytes(changed.encode())
            code, shown, _ = lab_command("class", "check", str(out))
            assert code == 1, pattern
            assert told in shown, (pattern, shown)
        (out / name).write_bytes(before)
    assert lab_command("class", "check", str(out))[0] == 0


def test_rows_of_another_lab_or_part_are_no_change(
    export: Path, lab_command: LabCommand, no_processes: None, tmp_path: Path
) -> None:
    for student in "ab":
        (export / student).mkdir()
    assert lab_command("class", "key", str(tmp_path / "class.key"))[0] == 0
    key = ("--key", str(tmp_path / "class.key"))
    for number in (1, 2):
        out = ("--out", str(tmp_path / "out"), "--part", f"{number}/2")
        assert lab_command("class", "grade", str(export), "03", *key, *out)[0] == 0
    code, shown, _ = lab_command("class", "check", str(tmp_path / "out"), *key)
    assert code == 0, shown
    lines = tmp_path / "out" / "results.jsonl"
    lines.write_text("".join(line for line in lines.read_text().splitlines(True) if '"student": "b"' not in line))
    code, shown, _ = lab_command("class", "check", str(tmp_path / "out"), *key)
    assert code == 1
    assert "b, lab 03: it is missing from results.jsonl" in shown


def test_what_is_not_read_is_told_everywhere(
    export: Path, lab: Lab, lab_command: LabCommand, no_processes: None, tmp_path: Path
) -> None:
    write(export, {"alice.py": "a = 1\n", "bob.tar.gz": "", ".DS_Store": "", "__MACOSX/x": ""})
    (export / "dana").symlink_to(tmp_path)
    write(export / "packed", {"s.tar.gz": ""})
    (export / "linked").mkdir()
    (export / "linked" / "policy.py").symlink_to(tmp_path / "elsewhere.py")
    zipped(export / "evil.zip", {"../../../evil/policy.py": "outside\n"})
    (export / "empty").mkdir()
    (export / "started").mkdir()
    grade = ("class", "grade", str(export), "03", "--out", str(tmp_path / "out"))
    code, shown, _ = lab_command(*grade)
    assert code == 0
    assert "not read: alice.py, bob.tar.gz, dana: a folder or a zip for each learner" in shown
    document = json.loads(lab_command(*grade, "--json")[1])
    assert document == json.loads((tmp_path / "out" / "results.json").read_text())
    assert document["not_read"] == ["alice.py", "bob.tar.gz", "dana"]
    assert {one["student"]: (one["verdict"], one["reason"]) for one in document["results"]} == {
        "empty": ("missing", "Nothing was submitted for lab 03."),
        "evil": ("missing", "No policy.py was found; submitted: ../../../evil/policy.py."),
        "linked": ("missing", "No policy.py was found; submitted: policy.py (a link)."),
        "packed": ("missing", "No policy.py was found; submitted: s.tar.gz."),
        "started": ("missing", "Nothing was submitted for lab 03."),
    }
    page = (tmp_path / "out" / "index.html").read_text()
    assert "Not read: alice.py, bob.tar.gz, dana: a folder or a zip for each learner." in page
    assert "No policy.py was found; submitted: s.tar.gz." in page
    assert "Nothing was submitted" not in page
    code, shown, _ = lab_command("class", "autograde", str(export / "packed"), "03")
    assert code == 1
    assert "No policy.py was found; submitted: s.tar.gz. Submit policy.py." in " ".join(shown.split())


def test_a_lab_without_its_folder_is_told_apart_from_no_lab_at_all(export: Path) -> None:
    labs = list(all_labs()[:2])
    write(export / "loose", {f"file{number}.py": "" for number in range(5)} | {"policy.py": ""})
    write(export / "one", {f"{labs[0].name}/{labs[0].editable[0]}": "", "other.txt": ""})
    told = {entry.student: [one.absence for one in submissions_of(entry, labs)] for entry in entries_of(export)}
    assert told["loose"][1] == (
        f"No folder {labs[1].name} with the lab's files was found; submitted: file0.py, file1.py, file2.py, …."
    )
    assert told["one"] == ["", f"Nothing was submitted for lab {labs[1].id}."]


def test_parts_hold_each_submission_once(export: Path) -> None:
    for student in "abcde":
        write(export / student, {"policy.py": f"answer = {student!r}\n"})
    labs = list(all_labs()[:2])
    everything = [one for entry in entries_of(export) for one in submissions_of(entry, labs)]
    for count in (1, 2, 3, 12):
        parts = [Part(number, count).of(everything) for number in range(1, count + 1)]
        told = sorted((one.student, one.lab.id) for part in parts for one in part)
        assert told == sorted((one.student, one.lab.id) for one in everything)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "1/0", "-1/2", "a/b", "1/2/3", "1/99999"])
def test_what_is_not_a_part_is_a_sentence(text: str) -> None:
    with pytest.raises(UsageError, match="is not a part"):
        Part.read(text)


@pytest.mark.extended
def test_two_machines_grade_a_class_that_one_command_joins(
    export: Path, lab: Lab, lab_command: LabCommand, no_processes: None, tmp_path: Path
) -> None:
    """Two processes, with a folder of results each, at the same time; then the results are joined."""
    write(export / "unsolved", unsolved(lab))
    for student in ("empty", "nobody", "absent"):
        (export / student).mkdir()
    key = tmp_path / "class.key"
    assert lab_command("class", "key", str(key))[0] == 0
    grade = ["class", "grade", str(export), "03", "--key", str(key)]
    halves = [[*grade, "--part", f"{number}/2", "--out", tmp_path / f"part-{number}"] for number in (1, 2)]
    commands = [[sys.executable, "-m", "labs.cli", *half] for half in halves]
    with contextlib.ExitStack() as stack:
        machines = [stack.enter_context(started(one, stdout=subprocess.DEVNULL)) for one in commands]
        assert [one.wait(timeout=HANG_S) for one in machines] == [0, 0]
    parts = [read_results(tmp_path / f"part-{number}" / "results.jsonl") for number in (1, 2)]
    assert [len(part) for part in parts] == [2, 2]

    taken = ("--from", str(tmp_path / "part-1"), "--from", str(tmp_path / "part-2"))
    code, shown, said = lab_command(*grade, "--out", str(tmp_path / "all"), *taken)
    assert code == 0, said
    assert "4 results of an earlier run still hold." in shown
    joined = read_results(tmp_path / "all" / "results.jsonl")
    assert joined == parts[0] | parts[1], "nothing is graded again"
    assert lab_command("class", "check", str(tmp_path / "all"), "--key", str(key))[0] == 0

    forged = tmp_path / "part-1" / "results.jsonl"
    forged.write_text(forged.read_text().replace('"missing"', '"passed"').replace('"failed"', '"passed"'))
    lab_command(*grade, "--out", str(tmp_path / "again"), *taken)
    verdicts = {one.verdict for one in read_results(tmp_path / "again" / "results.jsonl").values()}
    assert verdicts == {"missing", "failed"}, "a result that was changed is not taken over"


@pytest.mark.extended
def test_a_grading_process_that_dies_costs_one_result_at_most(
    export: Path, lab: Lab, collection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = lab.folder / "checks.py"
    killer = (
        "import os as _os, pathlib as _p\n"
        "if 'die here' in _p.Path(__file__).with_name('now').read_text(): _os._exit(1)\n"
    )
    (lab.folder / "now").write_text("")
    checks.write_text(
        checks.read_text().replace(
            "from __future__ import annotations\n", "from __future__ import annotations\n" + killer
        )
    )
    write(export / "a", solved(lab))
    write(export / "b", solved(lab))
    work = [grade_class.work_for(submissions_of(one, [lab])[0], b"k", "c") for one in entries_of(export)]
    (lab.folder / "now").write_text("die here")
    dead = list(grade_class.grade_all(work, 2))
    assert [one.verdict for one in dead] == ["error", "error"]
    assert "The process that graded it ended." in dead[0].reason
    (lab.folder / "now").write_text("")
    assert [one.verdict for one in grade_class.grade_all(work, 2)] == ["passed", "passed"]


def test_a_half_written_line_is_left_out_and_the_next_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with ResultsFile(path) as file:
        file.add(result("first"))
    path.write_bytes(path.read_bytes() + b'{"student": "sec')
    with ResultsFile(path) as file:
        file.add(result("third"))
    assert [student for student, _ in read_results(path)] == ["first", "third"]


def test_the_key_is_private_and_its_seeds_differ(tmp_path: Path) -> None:
    key = read_key(tmp_path / "class.key")
    assert read_key(tmp_path / "class.key") == key
    assert (tmp_path / "class.key").stat().st_mode & 0o077 == 0
    assert seed_for(key, "a", "03") != seed_for(key, "b", "03") != seed_for(key, "b", "04")
    assert result().signed(key).is_signed_by(key)
    assert not result().signed(key).is_signed_by(b"another")


def test_a_name_from_an_export_is_harmless_in_the_pages(lab: Lab) -> None:
    name = "=HYPERLINK(1)<script>alert(1)</script>"
    results = [result(name, reason="<img src=x onerror=alert(1)>", failed_checks=("<b>",))]
    page = as_html(results, [lab], {})
    assert "<script>" not in page
    assert "<img" not in page
    assert as_csv(results).splitlines()[1].startswith("'=HYPERLINK")


def test_the_page_is_valid_and_counts_in_the_singular_too(lab: Lab) -> None:
    page = as_html([result("a")], [lab], {})
    assert "<p>1 learner, 1 lab: 1 failed." in page
    assert "<p>2 learners, 1 lab: 2 failed." in as_html([result("a"), result("b")], [lab], {})
    assert page.index('<meta name="viewport"') < page.index("</head>")


def test_the_page_says_how_long_a_grade_of_a_lab_took(lab: Lab) -> None:
    timed = [result("a", seconds=4.0), result("b", seconds=6.0), result("c", seconds=90.0)]
    assert "6 s a grade" in as_html([*timed, result("d", verdict="missing", seconds=0.0)], [lab], {})
    assert "a grade" not in as_html([result("d", verdict="missing", seconds=0.0)], [lab], {})


def test_only_what_is_long_and_not_the_shipped_fix_is_near_identical() -> None:
    starter, fix = "a = 1\nb = 2\n", "a = 1\nb = 3  # the fix\n"
    essay = "".join(f"# I looked at number {i} and then at the gradient of layer {i}\n" for i in range(10))
    other = "".join(f"# something of my own, line {i * i}, about tensors {i}\n" for i in range(10))
    texts = {"a": fix, "b": fix, "c": fix + essay, "d": fix + essay.replace("number 3", "number 33"), "e": fix + other}
    [pair] = near_identical(texts, starter, fix)
    assert (pair.first, pair.second) == ("c", "d")
    assert 0.8 < pair.similarity < 1


def test_a_submission_of_equal_lines_costs_no_time() -> None:
    starter = "".join(f"    value = value + {i % 7}\n" for i in range(200))
    crafted = "".join(f"    value  =  value + {i % 7} \n" for i in range(20_000))
    began = time.process_time()
    near_identical({"a": crafted, "b": starter}, starter, starter)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nowhere",), "nowhere is not a folder"),
        (("empty",), "has no submissions"),
        (("loose",), "Not read: alice.py. loose needs a folder or a zip file for each learner."),
        (("empty", "--part", "1/2"), "create it with `lab class key FILE`"),
        (("empty", "--from", "part-1"), "create it with `lab class key FILE`"),
    ],
)
def test_a_mistake_is_one_sentence(lab_command: LabCommand, arguments: tuple[str, ...], told: str) -> None:
    Path("empty").mkdir()
    write(Path("loose"), {"alice.py": "a = 1\n"})
    code, shown, said = lab_command("class", "grade", *arguments, "03")
    assert (code, shown) == (2, "")
    assert told in said


@pytest.mark.extended
def test_the_gradescope_script_writes_a_result_for_each_lab(lab: Lab, lab_command: LabCommand, tmp_path: Path) -> None:
    assert lab_command("class", "template", "gradescope", "03", "--out", str(tmp_path / "source"))[0] == 0
    root = tmp_path / "autograder"
    write(root / "submission", solved(lab))
    (root / "results").mkdir()
    (root / "venv" / "bin").mkdir(parents=True)
    program = root / "venv" / "bin" / "lab"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m labs.cli "$@"\n')
    program.chmod(0o755)
    environment = os.environ | {"AUTOGRADER_ROOT": str(root)}
    script = str(tmp_path / "source" / "run_autograder")
    assert run([script], env=environment, cwd=Path(__file__).parents[2]).returncode == 0
    document = json.loads((root / "results" / "results.json").read_text())
    assert (document["score"], document["tests"][0]["status"]) == (10.0, "passed")
    (root / "submission" / "policy.py").unlink()
    assert run([script], env=environment, cwd=Path(__file__).parents[2]).returncode == 1
    document = json.loads((root / "results" / "results.json").read_text())
    assert document["score"] == 0
    assert "Nothing was submitted for lab 03. Submit policy.py." in document["tests"][0]["output"]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_template_is_valid_and_names_the_labs(platform: str, lab_command: LabCommand, tmp_path: Path) -> None:
    code, shown, _ = lab_command("class", "template", platform, "03", "--out", str(tmp_path / "made"))
    assert code == 0, shown
    made = [path for path in (tmp_path / "made").rglob("*") if path.is_file()]
    assert len(made) == len(FILES[platform])
    for path in made:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(?<!\$)\{\w+\}", text), "a value was not filled in"
        if text.startswith("#!"):
            assert run(["bash", "-n", str(path)]).returncode == 0
            assert os.access(path, os.X_OK)
        elif path.suffix == ".yml":
            steps = [step for job in yaml.safe_load(text)["jobs"].values() for step in job["steps"]]
            grading = [
                step["run"]
                for step in steps
                if re.search(r"lab class (autograde submission|grade submissions) 03", step.get("run", ""))
            ]
            assert len(grading) == (2 if platform == "matrix" else 1)
        elif path.suffix == ".json":
            assert "lab doctor" in json.loads(text)["postCreateCommand"]
        else:
            assert {line.split()[0] for line in text.splitlines()} <= {"#", "FROM", "RUN", "WORKDIR", "ENV", "CMD"}
    code, _, said = lab_command("class", "template", platform, "03", "--out", str(tmp_path / "made"))
    assert code == 2
    assert "exists, and nothing was written" in said


@pytest.fixture
def runner(tmp_path: Path, lab: Lab) -> Callable[..., int]:
    """A step of a workflow in its folder, as a runner executes it: bash stops at the first command that fails."""
    folder = tmp_path / "runner"
    program = write(folder / "bin", {"lab": f'#!/bin/sh\nexec "{sys.executable}" -m labs.cli "$@"\n'}) / "lab"
    program.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }

    def step(script: str, **variables: str) -> int:
        done = run(["bash", "-e", "-c", script], cwd=folder, env=environment | variables)
        assert done.returncode in (0, 1), done
        return done.returncode

    return step


def steps_of(platform: str, job: str, lab_command: LabCommand, tmp_path: Path) -> list[dict[str, Any]]:
    """The steps of a template's job that grade, and those that prepare the key; not those that install."""
    made = tmp_path / platform
    if not made.exists():
        assert lab_command("class", "template", platform, "03", "--out", str(made))[0] == 0
    [path] = made.rglob("*.yml")
    steps = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"][job]["steps"]
    return [step for step in steps if "run" in step and "working-directory" not in step]


@pytest.mark.extended
def test_the_workflow_of_an_assignment_grades_a_learner(
    lab: Lab, lab_command: LabCommand, runner: Callable[..., int], tmp_path: Path
) -> None:
    [step] = steps_of("github", "grade", lab_command, tmp_path)
    report = tmp_path / "runner" / "results.xml"
    for files, code in ((solved(lab), 0), (unsolved(lab), 1)):
        write(tmp_path / "runner" / "submission" / "workspace" / lab.name, files)
        assert runner(step["run"]) == code
        [suite] = ElementTree.parse(report).getroot()
        assert (int(suite.attrib["failures"]) > 0) == bool(code)
        report.unlink()


@pytest.mark.extended
def test_the_workflow_of_a_class_grades_each_part_and_joins_them(
    lab: Lab, lab_command: LabCommand, runner: Callable[..., int], tmp_path: Path
) -> None:
    folder = tmp_path / "runner"
    write(folder / "submissions" / "solved", solved(lab))
    for student in ("empty", "nobody", "absent"):
        (folder / "submissions" / student).mkdir()
    for part in "1234":
        make_key, grade = steps_of("matrix", "part", lab_command, tmp_path)
        assert list(make_key["env"]) == ["CLASS_KEY"]
        assert runner(make_key["run"], CLASS_KEY="ab" * 32) == 0
        assert runner(grade["run"].replace("${{ matrix.part }}", part)) == 0
        (folder / f"part-{part}").mkdir()
        (folder / "part" / "results.jsonl").rename(folder / f"part-{part}" / "results.jsonl")  # the artifact
    assert [len(read_results(folder / f"part-{part}" / "results.jsonl")) for part in "1234"] == [1, 1, 1, 1]
    make_key, grade = steps_of("matrix", "all", lab_command, tmp_path)
    assert runner(make_key["run"], CLASS_KEY="ab" * 32) == 0
    assert runner(grade["run"]) == 0
    joined = json.loads((folder / "class-results" / "results.json").read_text())["results"]
    assert {one["student"]: one["verdict"] for one in joined} == dict.fromkeys(
        ("absent", "empty", "nobody"), "missing"
    ) | {"solved": "passed"}
    assert runner("lab class check class-results --key class.key") == 0


LEARNERS = int(os.environ.get("LAB_CLASS_LEARNERS", "0"))
"""With 200, the measurement of the page for instructors: three real labs."""


@pytest.mark.extended
def test_a_class_survives_a_kill_with_every_verdict_and_flat_memory(request: pytest.FixtureRequest) -> None:
    script = Path(__file__).parents[1] / "benchmarks" / "class_of_200.py"
    asked = ["--learners", str(LEARNERS or 12), "--jobs", "2" if LEARNERS else "1"]
    if not LEARNERS:
        request.getfixturevalue("collection")
        asked.append("03")
    done = run(
        [sys.executable, str(script), *asked], env=os.environ | {"PYTHONPATH": str(script.parents[2])}, check=True
    )
    measured = json.loads(done.stdout)
    assert measured["exit_code"] == 0
    assert measured["processes_left_by_the_kill"] == 0
    assert measured["wrong_verdicts"] == []
    assert measured["graded"] == measured["submissions"] > measured["kept_over_the_kill"] >= measured["submissions"] / 3
    assert measured["written_more_than_once"] <= 1, "a kill costs a half-written line at most"
    *_, before, after = measured["median_mib_by_third"]
    assert after <= 1.25 * before


def test_the_syllabus_has_every_lab_once() -> None:
    page = (Path(__file__).parents[2] / "docs" / "teaching.md").read_text(encoding="utf-8")
    weeks = page.partition("## Ten weeks")[2].partition("## ")[0]
    rows = [line.split("|")[3:5] for line in weeks.splitlines() if re.match(r"\| \d+ \|", line)]
    assert sorted(re.findall(r"\d\d", " ".join(map(" ".join, rows)))) == [lab.id for lab in all_labs()]
