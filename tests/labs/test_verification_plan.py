"""Which labs `lab dev verify` grades, how much of each, on how many seeds, and in which processes."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import msgspec
import pytest

from child_processes import HANG_S
from labs.authoring import verified, verify_many
from labs.authoring import verify as verification
from labs.authoring.content_hash import Content
from labs.authoring.lesson_run import difference_from_lesson, without_smallest
from labs.authoring.plan import Task, plan
from labs.authoring.verified import write_verified
from labs.authoring.verify_many import OnDemandServer
from labs.grading import ForkServer, catalog
from labs.grading.catalog import Lab
from labs.learner.lesson import lesson_file

EXTENDED_DEPENDS_ON = ("debugkit", "labs", "solutions", "tests/labs")

Run = Callable[..., tuple[int, str, str]]
Asked = Callable[..., dict[str, Counter[str]]]


@pytest.mark.parametrize(
    ("full", "correct"), [(False, {"whole": 2, "structural": 3}), (True, {"whole": 5})], ids=["quick", "full"]
)
def test_structural_checks_run_on_five_seeds_and_outcomes_on_two_or_all(
    lab: Lab, asked: Asked, full: bool, correct: dict[str, int]
) -> None:
    found = asked(lab, full=full)
    assert found.pop("stub") == {"whole": 1}
    assert found.pop("solution") == found.pop("alternative_addcmul") == correct
    assert found.pop("starter") == {"structural": 5}
    assert found == {name: {"structural": 5 if full else 2} for name in ("clamp", "drop_the_mean", "tuned_gain")}


@pytest.mark.parametrize(
    ("scope", "submissions"), [("files", []), ("rules", ["starter", "solution", "alternative_addcmul"])]
)
def test_a_smaller_scope_grades_nothing(lab: Lab, asked: Asked, scope: str, submissions: list[str]) -> None:
    with_rules = msgspec.structs.replace(lab, rules=("DK002",))
    probe = lab.folder / "probe.py"
    probe.write_text(probe.read_text() + "\n\ndef subject(learner):\n    return {}\n")
    assert asked(with_rules, scope=scope) == {name: {"rules": 1} for name in submissions}


def test_a_lab_is_graded_again_only_where_something_changed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def scope(**how: bool) -> tuple[str, str | None]:
        (task,) = plan([lab], **{"changed": True, **how})
        return task.scope, task.why

    now = Content("a", "b", "c", "d")
    monkeypatch.setattr(verified, "content_of", lambda _: now)
    assert scope(changed=False) == ("all", None)
    assert scope() == ("all", "never fully verified")
    write_verified(lab, grades=12, margins={})
    assert scope() == ("files", None)
    date = json.loads((lab.solution / "verified.json").read_text())["date"]
    for part, sentence in verified.PARTS.items():
        now = msgspec.structs.replace(Content("a", "b", "c", "d"), **{part: "new"})
        only = {"debugkit": "rules", "lab": "changes"}.get(part, "all")
        what = "its recognisers or its probe" if part == "lab" else sentence
        assert scope() == (only, f"{what} changed since {date}")
    now = Content("new", "b", "new", "d")
    assert scope() == ("all", f"its own files and the grader changed since {date}")


def test_where_debugkit_alone_changed_the_record_holds_again_after_its_rules_ran(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed() -> tuple[str, ...] | None:
        stale = verified.why_stale(lab)
        return None if stale is None else stale.changed

    monkeypatch.setattr(verified, "content_of", lambda _: Content("a", "b", "c", "d"))
    write_verified(lab, grades=12, margins={"test_reaches": 4.5})
    monkeypatch.setattr(verified, "content_of", lambda _: Content("a", "b", "c", "new"))
    for options, after in (({}, ("debugkit",)), ({"full": True}, None)):
        assert changed() == ("debugkit",)
        assert verification.verify(lab, OnDemandServer(), scope="rules", **options).ok
        assert changed() == after
    record = json.loads((lab.solution / "verified.json").read_text())
    assert (record["grades"], record["margins"]) == (12, {"test_reaches": 4.5})


@pytest.mark.slow
def test_a_lesson_begins_with_what_the_run_prints(lab: Lab) -> None:
    lesson = lesson_file(lab)
    with ForkServer() as server:
        assert difference_from_lesson(lab, server) is None
        lesson.write_text(lesson.read_text().replace("there, back [-1.108", "there, back [-1.308"))
        found = difference_from_lesson(lab, server)
        assert found is not None
        assert found.startswith("shown:   there, back [-1.308")
        lesson.write_text(lesson.read_text().replace("lab run 03", "nothing"))
        assert difference_from_lesson(lab, server) is None


def test_the_smallest_values_of_frames_depend_on_the_processor() -> None:
    frames = """before 2.58e-03 9.85e+01
abs min  abs max  tensor    abs min  abs max  metadata
                  gate                        gate
2.06e-04 4.34e+00 weight    2.06e-04 4.34e+00 weight
0.00e+00      inf output    0.00e+00      inf output"""
    assert (
        without_smallest(frames)
        == """before 2.58e-03 9.85e+01
abs min  abs max  tensor    abs min  abs max  metadata
                  gate                        gate
?        4.34e+00 weight    ?        4.34e+00 weight
0.00e+00      inf output    0.00e+00      inf output"""
    )


@pytest.fixture
def two_labs(collection: Path) -> list[Lab]:
    """The fixture lab twice, under two numbers."""
    for folder in ("labs", "solutions"):
        shutil.copytree(collection / folder / "lab03_swapped_order", collection / folder / "lab04_swapped_order")
    facts = collection / "labs" / "lab04_swapped_order" / "lab.toml"
    facts.write_text(facts.read_text().replace('id = "03"', 'id = "04"'))
    lesson = collection / "docs" / "lessons" / "shapes" / "03_swapped_order.md"
    shutil.copyfile(lesson, lesson.with_name("04_swapped_order.md"))
    catalog.all_labs.cache_clear()
    return list(catalog.all_labs())


@pytest.mark.extended
def test_what_holds_is_listed_and_what_changed_is_verified_with_the_reason(
    two_labs: list[Lab], lab_command: Run
) -> None:
    unchanged, edited = two_labs
    for lab in two_labs:
        write_verified(lab, grades=12, margins={})
    checks = edited.folder / "checks.py"
    checks.write_text(checks.read_text().replace("for batch in (1, 5)", "for batch in (1, 5, 6)"))
    (unchanged.folder / "hints.md").write_text((unchanged.folder / "hints.md").read_text() + "\nAnd so on.\n")
    code, out, err = lab_command("dev", "verify", "--changed")
    assert code == 0, out + err
    assert "✓ 04  swapped_order  22 grades · test_equals_the_reference changed since" in out
    assert "unchanged since their full verification: 03" in out
    assert "2 of 2 labs meet the requirements" in out


def test_a_lab_that_is_not_graded_is_still_read(two_labs: list[Lab], lab_command: Run) -> None:
    for lab in two_labs:
        write_verified(lab, grades=12, margins={})
    (two_labs[0].folder / "hints.md").write_text("## 1\nOne hint.\n")
    code, out, _ = lab_command("dev", "verify", "--changed")
    assert code == 1
    assert "✗ 03  swapped_order" in out
    assert "full verification: 04" in out


@pytest.mark.extended
def test_two_processes_give_the_same_results_as_one(two_labs: list[Lab]) -> None:
    (two_labs[0].folder / "hints.md").write_text("## 1\nOne hint.\n")
    tasks = [Task(lab, "files", "never fully verified") for lab in two_labs]
    one, two = (
        {result["id"]: result for result in verify_many.run_tasks(tasks, full=False, jobs=jobs)} for jobs in (1, 2)
    )
    assert one == two
    assert [one[number]["ok"] for number in ("03", "04")] == [False, True]


def test_a_worker_that_dies_is_reported_for_its_labs(lab: Lab) -> None:
    future: Future[dict[str, Any]] = Future()
    future.set_exception(BrokenProcessPool())
    result = verify_many._result(future, Task(lab, "all", "never fully verified"))
    assert (result["id"], result["ok"], result["why"]) == ("03", False, "never fully verified")
    assert "died" in result["violations"][0]["sentence"]


def test_no_worker_is_left_where_the_reader_stops_early(two_labs: list[Lab]) -> None:
    tasks = [Task(lab, "files") for lab in two_labs]
    results = verify_many.run_tasks(tasks, full=False, jobs=2)
    assert next(results)["ok"]
    results.close()
    deadline = time.monotonic() + HANG_S  # a process that has ended may take a moment to be reaped
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert multiprocessing.active_children() == []


def test_no_server_is_started_where_nothing_is_graded(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_many, "ForkServer", lambda: pytest.fail("a fork server was started"))
    (result,) = verify_many.run_tasks([Task(lab, "files")], full=False, jobs=1)
    assert (result["ok"], result["grades"]) == (True, 0)
