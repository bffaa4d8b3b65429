"""What holds for every capstone: how it is declared, handed out and graded in parts."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from labs.authoring.content_hash import content_of
from labs.authoring.grading_rules import Graded
from labs.authoring.lint import lint
from labs.authoring.lint_capstone import ONLY, judge_partial_fixes, judge_starter_has_every_fault, lint_capstone
from labs.authoring.variants import wrong_fixes
from labs.capstones.capstone import Capstone, Fault, all_capstones, find_capstone
from labs.capstones.parts import outcomes_of, promises_kept, states_of
from labs.cli.app import app
from labs.cli.show_capstone import without_the_fault
from labs.cli.which_lab import shipped_lab
from labs.grading.declarations import Declared
from labs.grading.feedback import feedback_steps
from labs.grading.grades import CheckResult, Grade
from labs.grading.runner import declared_by as declared_of
from labs.learner.workspace import Workspace, originals

EXTENDED_DEPENDS_ON = ("debugkit", "labs", "solutions", "tests/capstones")

ROOT = Path(__file__).parents[2]
declared_by = functools.cache(declared_of)  # a collection by pytest each time
CAPSTONES = pytest.mark.parametrize("capstone", all_capstones(), ids=lambda one: one.id)


def grade_of(capstone: Capstone, verdict: str = "failed", raised: bool = False, **outcomes: str) -> Grade:
    """A grade with a result for each check; those that are not named passed."""
    checks = tuple(
        CheckResult(check.id, check.title, check.kind, outcomes.get(check.id, "passed"), "told", 1, 2, raised=raised)
        for check in declared_by(capstone).checks
    )
    return Grade(capstone.id, capstone.slug, verdict, "why", 1.0, 7, checks=checks)


@CAPSTONES
def test_meets_the_requirements_that_reading_shows(capstone: Capstone) -> None:
    assert lint(capstone, declared_by(capstone)) == []


@CAPSTONES
def test_is_found_by_number_slug_and_folder(capstone: Capstone) -> None:
    for name in (capstone.id, capstone.id.upper(), capstone.slug, capstone.name, f"capstone{capstone.id}"):
        assert find_capstone(name) == capstone
        assert shipped_lab(name) == capstone


@CAPSTONES
def test_page_lists_it(capstone: Capstone) -> None:
    for name in ("capstones.md", "capstones.ko.md"):
        page = (ROOT / "docs" / "guides" / name).read_text(encoding="utf-8")
        assert re.search(rf"^\| `{capstone.id}` \|", page, re.MULTILINE)


@CAPSTONES
def test_no_checks_title_tells_a_fault_in_the_list(capstone: Capstone) -> None:
    """Before a pass, no command prints the title of a check of a fault."""
    grade = grade_of(capstone, **{name: "failed" for fault in capstone.faults for name in fault.checks})
    steps = without_the_fault(feedback_steps(grade, capstone), grade, capstone)
    assert [step.label for step in steps] == ["Seed", "Stuck?"]


@CAPSTONES
def test_broken_promise_is_told_whole(capstone: Capstone) -> None:
    of_a_fault = {name for fault in capstone.faults for name in fault.checks}
    promises = [check.id for check in declared_by(capstone).checks if check.id not in of_a_fault]
    if not promises:
        pytest.skip("it has no check beside those of its faults")
    grade = grade_of(capstone, **{promises[0]: "failed"})
    labels = [step.label for step in without_the_fault(feedback_steps(grade, capstone), grade, capstone)]
    assert "Requirement" in labels


def test_states_follow_from_the_checks() -> None:
    capstone = all_capstones()[0]
    first, second = (fault.checks[0] for fault in capstone.faults[:2])
    assert states_of(capstone, grade_of(capstone))[:2] == ["gone", "gone"]
    assert states_of(capstone, grade_of(capstone, **{first: "failed"}))[:2] == ["there", "gone"]
    assert states_of(capstone, grade_of(capstone, **{second: "not_run"}))[:2] == ["gone", "not judged"]
    assert states_of(capstone, grade_of(capstone, raised=True, **{second: "failed"}))[:2] == ["gone", "not judged"]


def test_outcome_is_no_promise() -> None:
    capstone = next(one for one in all_capstones() if any(c.kind == "outcome" for c in declared_by(one).checks))
    (outcome,) = [check.id for check in declared_by(capstone).checks if check.kind == "outcome"]
    grade = grade_of(capstone, **{outcome: "failed"})
    assert [check.id for check in outcomes_of(capstone, grade)] == [outcome]
    assert promises_kept(capstone, grade) == "gone"


@CAPSTONES
def test_handout_is_copied_and_a_learners_text_is_kept(capstone: Capstone, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "work")
    workspace.start(capstone)
    attempt = workspace.attempt(capstone)
    assert {path.relative_to(attempt).as_posix() for path in attempt.rglob("*") if path.is_file()} == set(
        originals(capstone)
    )
    (attempt / "post_mortem.md").write_text("mine", encoding="utf-8")
    assert workspace.start(capstone) is False
    assert (attempt / "post_mortem.md").read_text(encoding="utf-8") == "mine"
    kept = workspace.reset(capstone)
    assert (kept / "post_mortem.md").read_text(encoding="utf-8") == "mine"


def test_list_has_them_apart_from_the_labs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    document = json.loads(CliRunner().invoke(app, ["list", "--json"]).stdout)
    assert [one["id"] for one in document["capstones"]] == [one.id for one in all_capstones()]
    assert not {one["id"] for one in document["labs"]} & {one.id for one in all_capstones()}


def with_faults(capstone: Capstone, *faults: Fault) -> Capstone:
    return msgspec.structs.replace(capstone, faults=faults)


def test_fault_without_a_check_or_with_anothers_is_a_violation() -> None:
    capstone = all_capstones()[0]
    declared = declared_by(capstone)
    name = declared.checks[0].id
    twice = with_faults(capstone, Fault(checks=(name,), what="a"), Fault(checks=(name, "test_nothing"), what="b"))
    found = " ".join(violation.sentence for violation in lint_capstone(twice, declared))
    assert "test_nothing is not a check" in found
    assert f"{name} belongs to 2 faults" in found


@pytest.mark.extended
def test_description_of_a_fault_needs_no_new_verification_and_its_checks_do() -> None:
    capstone = all_capstones()[0]
    first, *others = capstone.faults
    reworded = msgspec.structs.replace(first, what="Another sentence.")
    judged_by_another = msgspec.structs.replace(first, checks=(declared_by(capstone).checks[-1].id,))
    wanted = content_of(capstone).lab
    assert content_of(with_faults(capstone, reworded, *others)).lab == wanted
    assert content_of(with_faults(capstone, judged_by_another, *others)).lab != wanted


def test_partial_fix_that_leaves_another_fault_is_a_violation() -> None:
    capstone = all_capstones()[0]
    wrongs = wrong_fixes(capstone)
    number = next(index for index, wrong in enumerate(wrongs) if wrong.name.startswith(ONLY))
    own = next(fault for fault in capstone.faults if wrongs[number].refused_by in fault.checks)
    other = next(fault for fault in capstone.faults if fault is not own)

    def judged(*names: str) -> list[str]:
        grades = [Graded(wrong.label, ()) for wrong in wrongs]
        grades[number] = Graded("a", (grade_of(capstone, **dict.fromkeys(names, "failed")),))
        return [violation.sentence for violation in judge_partial_fixes(capstone, wrongs, grades)]

    assert judged(own.checks[0]) == []
    assert judged(own.checks[0], other.checks[0]) != []
    assert judged() != []


def test_starter_without_a_fault_is_a_violation() -> None:
    capstone = all_capstones()[0]
    every = {fault.checks[0]: "failed" for fault in capstone.faults}
    assert list(judge_starter_has_every_fault(capstone, Graded("a", (grade_of(capstone, **every),)))) == []
    every.popitem()
    assert list(judge_starter_has_every_fault(capstone, Graded("a", (grade_of(capstone, **every),)))) != []


def test_missing_text_is_a_violation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    capstone = all_capstones()[0]
    monkeypatch.setattr("labs.grading.catalog.SOLUTIONS_ROOT", tmp_path)
    found = [violation.sentence for violation in lint_capstone(capstone, Declared((), ()))]
    assert any("post_mortem.ko.md is missing" in sentence for sentence in found)
