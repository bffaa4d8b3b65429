"""The rules on grades: pure functions, each shown what it must accept and what it must refuse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labs.authoring import grading_rules as rules
from labs.authoring.edits import Edit
from labs.authoring.grading_rules import Graded
from labs.authoring.variants import Variant
from labs.grading.declarations import Check, Declared, WrongFix
from labs.grading.grades import CheckResult, Grade

DECLARED = Declared(
    (
        Check("test_equal", "behaviour", "t", "p", "i", "m"),
        Check("test_keeps", "invariant", "t", "p", "i", "m"),
        Check("test_arrives", "outcome", "t", "p", "i", "m"),
    ),
    (WrongFix("clamp", "it is clamped", lambda evidence: evidence.get("clamped", False)),),
)
CLAMP = Variant("clamp", "wrong_fixes/clamp.diff", True, Edit({"refused_by": "test_equal"}, "starter", {}))


def graded(*failing: str, name: str = "it", clamped: bool = False, reached: tuple[float, ...] = (0.9,)) -> Graded:
    """Grades, one per value reached, in which the named checks failed."""
    grades = []
    for seed, value in enumerate(reached):
        checks = tuple(
            CheckResult(
                check.id,
                "t",
                check.kind,
                "failed" if check.id in failing else "passed",
                measured=value,
                expected="≥ 0.5",
            )
            for check in DECLARED.checks
        )
        verdict = "failed" if failing else "passed"
        grades.append(Grade("03", "s", verdict, None, 0.0, seed, None, checks, evidence={"clamped": clamped}))
    return Graded(name, tuple(grades))


def broken(violations: object) -> list[str]:
    return [violation.rule for violation in violations]  # type: ignore[attr-defined]


def test_a_starter_must_fail_a_behaviour_check_and_be_no_wrong_fix() -> None:
    assert broken(rules.judge_starter(graded("test_equal"), DECLARED)) == []
    assert broken(rules.judge_starter(graded(), DECLARED)) == ["starter fails"]
    assert broken(rules.judge_starter(graded("test_keeps"), DECLARED)) == ["starter fails"]
    assert broken(rules.judge_starter(graded("test_equal", clamped=True), DECLARED)) == ["recognised"]


def test_a_solution_must_pass_on_every_seed_and_be_no_wrong_fix() -> None:
    assert broken(rules.judge_correct(graded(reached=(0.9, 0.8)), DECLARED)) == []
    assert broken(rules.judge_correct(graded("test_arrives", reached=(0.9, 0.8)), DECLARED)) == ["solution passes"] * 2
    assert broken(rules.judge_correct(graded(clamped=True), DECLARED)) == ["recognised"]


def test_a_wrong_fix_must_be_refused_by_the_check_it_names_and_be_recognised() -> None:
    assert broken(rules.judge_wrong(CLAMP, graded("test_equal", clamped=True), DECLARED)) == []
    assert broken(rules.judge_wrong(CLAMP, graded("test_keeps", clamped=True), DECLARED)) == ["wrong fix refused"]
    assert broken(rules.judge_wrong(CLAMP, graded("test_equal"), DECLARED)) == ["recognised"]


def test_a_wrong_fix_without_a_recogniser_gets_no_name() -> None:
    other = Variant("squash", "wrong_fixes/squash.diff", True, CLAMP.edit)
    assert broken(rules.judge_wrong(other, graded("test_equal"), DECLARED)) == []
    assert broken(rules.judge_wrong(other, graded("test_equal", clamped=True), DECLARED)) == ["recognised"]


def test_another_spelling_of_a_wrong_fix_gets_its_name() -> None:
    header = {"refused_by": "test_equal", "named": "clamp"}
    squash = Variant("squash", "wrong_fixes/squash.diff", True, Edit(header, "starter", {}))
    assert broken(rules.judge_wrong(squash, graded("test_equal", clamped=True), DECLARED)) == []
    assert broken(rules.judge_wrong(squash, graded("test_equal"), DECLARED)) == ["recognised"]


def test_a_recogniser_needs_a_near_miss() -> None:
    def near(name: str, of: str) -> Variant:
        header = {"refused_by": "test_equal", "near_miss": of}
        return Variant(name, f"wrong_fixes/{name}.diff", True, Edit(header, "starter", {}))

    assert broken(rules.judge_near_misses(DECLARED, [CLAMP, near("squash", "clamp")])) == []
    assert broken(rules.judge_near_misses(DECLARED, [CLAMP])) == ["recognised"]
    assert broken(rules.judge_near_misses(DECLARED, [near("clamp", "clamp")])) == ["recognised"]
    assert broken(rules.judge_near_misses(DECLARED, [near("squash", "clamp"), near("other", "unknown")])) == [
        "recognised"
    ]


def test_debugkit_is_silent_on_a_correct_fix() -> None:
    found = [
        {"code": "DK203", "severity": "warning", "message": "m"},
        {"code": "DK305", "severity": "error", "message": "w"},
    ]
    assert broken(rules.judge_silence("the solution", found[:1])) == []
    (violation,) = rules.judge_silence("the solution", found)
    assert violation.sentence == "DK305 fires on the solution: w"


def test_a_refusal_by_chance_is_counted_over_the_seeds() -> None:
    assert broken(rules.judge_chance("the solution", {}, 200)) == []
    (violation,) = rules.judge_chance("the solution", {7: "the loss is 2.", 9: "the loss is 3."}, 200)
    assert violation.sentence == "the solution is refused on 2 of 200 seeds; on seed 7: the loss is 2."


def test_a_recogniser_needs_a_wrong_fix_that_proves_it() -> None:
    assert broken(rules.judge_recognisers(DECLARED, [CLAMP])) == []
    assert broken(rules.judge_recognisers(DECLARED, [])) == ["recognised"]


def test_shapes_alone_must_not_pass() -> None:
    assert broken(rules.judge_stub(graded("test_equal"))) == []
    assert broken(rules.judge_stub(graded())) == ["stub refused"]


def test_a_behaviour_check_that_refuses_nothing_is_refused() -> None:
    assert broken(rules.judge_checks_can_fail(DECLARED, [graded("test_equal")])) == []
    assert broken(rules.judge_checks_can_fail(DECLARED, [graded("test_keeps")])) == ["checks can fail"]


@pytest.mark.parametrize(
    ("on_starter", "on_solution", "violations"),
    [(["DK002"], [], 0), ([], [], 1), (["DK002"], ["DK002"], 1), (["DK101"], ["DK002"], 2)],
)
def test_rules_fire_on_the_starter_and_stay_silent_on_the_solution(
    on_starter: list[str], on_solution: list[str], violations: int
) -> None:
    assert broken(rules.judge_rules(["DK002"], on_starter, on_solution)) == ["rules"] * violations


def test_a_narrow_margin_is_refused_and_a_wide_one_is_not() -> None:
    assert broken(rules.judge_margin(graded(reached=(0.90, 0.91, 0.92, 0.93, 0.94)))) == []
    assert broken(rules.judge_margin(graded(reached=(0.52, 0.60, 0.70, 0.80, 0.90)))) == ["margin"]


def test_two_seeds_are_too_few_to_judge_a_margin() -> None:
    assert broken(rules.judge_margin(graded(reached=(0.51, 0.9)))) == []


@given(
    values=st.lists(st.integers(-100, 100), min_size=2, max_size=8, unique=True),
    bar=st.integers(-100, 100),
    shift=st.floats(1, 50),
)
def test_a_margin_grows_with_the_distance_from_the_bar(values: list[int], bar: int, shift: float) -> None:
    def margin(sign: str, offset: float) -> float | None:
        results = [
            CheckResult("c", "t", "outcome", "passed", measured=value + offset, expected=f"{sign} {bar!r}")
            for value in values
        ]
        return rules.margin_of(results)

    up, down = margin("≥", shift), margin("≤", -shift)
    here, there = margin("≥", 0.0), margin("≤", 0.0)
    assert up is not None
    assert down is not None
    assert here is not None
    assert there is not None
    assert up >= here - 1e-6 * abs(here) - 1e-6
    assert down >= there - 1e-6 * abs(there) - 1e-6


@pytest.mark.parametrize("expected", [True, None, {"shape": [3]}, "finite numbers", "≥ many"])
def test_what_has_no_numeric_bar_has_no_margin(expected: object) -> None:
    results = [CheckResult("c", "t", "outcome", "passed", measured=1.0, expected=expected)] * 5
    assert rules.margin_of(results) is None
