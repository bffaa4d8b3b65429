"""The requirements on a lab's grades: those of the starter, the solutions, the wrong fixes and the stub submission.

Each rule is a pure function of grades. `verify` makes them, and decides on how many seeds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labs.authoring.variants import Variant
from labs.authoring.violation import Violation
from labs.grading.declarations import Declared
from labs.grading.grades import CheckResult, Grade

MARGIN = 3.0
"""Standard errors required between an outcome's bar and the solution's mean; with fewer, a correct fix may fail."""
FEWEST_FOR_MARGIN = 5


@dataclass(frozen=True)
class Graded:
    """One submission's name and its grades, one for each seed."""

    name: str
    grades: tuple[Grade, ...]


def judge_starter(starter: Graded, declared: Declared) -> Iterator[Violation]:
    """The starter runs, fails a behaviour check on every seed, and is not recognised as a wrong fix."""
    for grade in starter.grades:
        failed = [check for check in grade.failed_checks if check.kind == "behaviour"]
        if grade.verdict != "failed" or not failed:
            why = grade.reason or grade.verdict
            yield Violation(
                "starter fails", f"the starter is not refused by a behaviour check (seed {grade.seed}): {why}"
            )
    yield from _recognised(starter, declared)


def judge_correct(correct: Graded, declared: Declared) -> Iterator[Violation]:
    """The solution, or an alternative, passes on every seed and is not recognised as a wrong fix."""
    for grade in correct.grades:
        if grade.verdict != "passed":
            why = "; ".join(f"{check.id}: {check.message}" for check in _not_passed(grade)) or grade.reason
            yield Violation("solution passes", f"{correct.name} does not pass with seed {grade.seed}: {why}")
    yield from _recognised(correct, declared)


def judge_chance(name: str, refusals: Mapping[int, str], seeds: int) -> Iterator[Violation]:
    """No structural check refuses a correct fix on any of many seeds. `refusals` maps a seed to its message."""
    for seed, message in list(refusals.items())[:1]:
        yield Violation(
            "no chance", f"{name} is refused on {len(refusals)} of {seeds} seeds; on seed {seed}: {message}"
        )


def judge_margin(solution: Graded) -> Iterator[Violation]:
    """Each outcome check's bar is far enough from what the solution reaches over the seeds."""
    for check_id, results in _outcomes(solution.grades).items():
        margin = margin_of(results) if len(results) >= FEWEST_FOR_MARGIN else None
        if margin is not None and margin < MARGIN:
            reached = ", ".join(f"{result.measured:.4g}" for result in results)
            yield Violation(
                "margin",
                f"{check_id} passes by {margin:.1f} standard errors and needs {MARGIN:.0f}: "
                f"measured {reached}, expected {results[0].expected}",
            )


def margin_of(results: Sequence[CheckResult]) -> float | None:
    """Distance from the mean to the bar in standard deviations over the seeds; None where there is no numeric bar."""
    bars = [_bar(result.expected) for result in results]
    values = [result.measured for result in results]
    if None in bars or not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        return None
    (sign, bar), *_ = [bar for bar in bars if bar is not None]
    distance = sign * (statistics.fmean(values) - bar)
    spread = statistics.stdev(values)
    if spread == 0.0:
        return float("inf") if distance >= 0 else float("-inf")
    return distance / spread


def margins(solution: Graded) -> dict[str, float | None]:
    """Each outcome check's margin over the seeds; None where it has no numeric bar or the seeds do not differ."""
    found: dict[str, float | None] = {}
    for check_id, results in _outcomes(solution.grades).items():
        margin = margin_of(results) if len(results) > 1 else None
        found[check_id] = round(margin, 1) if margin is not None and math.isfinite(margin) else None
    return found


def judge_wrong(wrong: Variant, graded: Graded, declared: Declared) -> Iterator[Violation]:
    """A wrong fix is refused by the check its header names, and gets its own name, its header's, or none."""
    for grade in graded.grades:
        refusing = {check.id for check in grade.failed_checks}
        if wrong.refused_by not in refusing:
            by = ", ".join(sorted(refusing)) or f"no check (verdict {grade.verdict}; {grade.reason})"
            yield Violation(
                "wrong fix refused",
                f"{graded.name} is not refused by {wrong.refused_by} with seed {grade.seed}, but by {by}",
            )
    known = {recogniser.name for recogniser in declared.wrong_fixes}
    expected = wrong.name if wrong.name in known else wrong.named
    for grade in graded.grades:
        found = declared.recognise(grade.evidence or {})
        name = None if found is None else found[0].name
        if name != expected:
            yield Violation(
                "recognised", f"{graded.name} is recognised as {name or 'no wrong fix'} with seed {grade.seed}"
            )


def judge_recognisers(declared: Declared, wrongs: Sequence[Variant]) -> Iterator[Violation]:
    """Every recogniser has a wrong fix that proves it."""
    names = {wrong.name for wrong in wrongs}
    for recogniser in declared.wrong_fixes:
        if recogniser.name not in names:
            yield Violation("recognised", f"wrong_fixes/{recogniser.name}.diff is missing: it proves its recogniser")


def judge_near_misses(declared: Declared, wrongs: Sequence[Variant]) -> Iterator[Violation]:
    """Every recogniser has a wrong fix that resembles it, and that `judge_wrong` finds without its name."""
    names = {recogniser.name for recogniser in declared.wrong_fixes}
    shown = {wrong.near_miss for wrong in wrongs}
    for name in sorted(names - shown):
        yield Violation("recognised", f"no wrong fix has the line `near_miss: {name}`: what {name} must not be said of")
    for wrong in wrongs:
        if wrong.near_miss is not None and (wrong.near_miss not in names or wrong.near_miss == wrong.name):
            yield Violation("recognised", f"{wrong.label} is a near miss of {wrong.near_miss}: no other recogniser")


def judge_stub(stub: Graded) -> Iterator[Violation]:
    """A submission with correct shapes and zero values does not pass."""
    for grade in stub.grades:
        if grade.verdict == "passed":
            yield Violation("stub refused", f"zeros of the correct shapes pass every check (seed {grade.seed})")


def judge_checks_can_fail(
    declared: Declared, failing: Sequence[Graded], known: Collection[str] = ()
) -> Iterator[Violation]:
    """Every behaviour check refuses something: the starter, a wrong fix or the stub. Of `known` it is known."""
    failed = {check.id for graded in failing for grade in graded.grades for check in grade.failed_checks} | {*known}
    for check in declared.checks:
        if check.kind == "behaviour" and check.id not in failed:
            yield Violation("checks can fail", f"{check.id} refuses neither the starter nor any wrong fix")


def judge_rules(wanted: Sequence[str], on_starter: Sequence[str], on_solution: Sequence[str]) -> Iterator[Violation]:
    """The rules in lab.toml fire on the starter and stay silent on the solution."""
    for code in wanted:
        if code not in on_starter:
            there = ", ".join(on_starter) or "none"
            yield Violation("rules", f"{code} does not fire on the starter; these do: {there}")
        if code in on_solution:
            yield Violation("rules", f"{code} fires on the solution")


def judge_silence(name: str, findings: Sequence[Mapping[str, Any]]) -> Iterator[Violation]:
    """debugkit has no error for a correct fix; a learner would take it for the fault."""
    for finding in findings:
        if finding["severity"] == "error":
            yield Violation("rules", f"{finding['code']} fires on {name}: {finding['message']}")


def _recognised(graded: Graded, declared: Declared) -> Iterator[Violation]:
    for grade in graded.grades:
        found = declared.recognise(grade.evidence or {})
        if found is not None:
            yield Violation(
                "recognised", f"{graded.name} is recognised as the wrong fix {found[0].name} (seed {grade.seed})"
            )


def _not_passed(grade: Grade) -> list[CheckResult]:
    return [check for check in grade.checks if check.outcome in ("failed", "error")]


def _outcomes(grades: Sequence[Grade]) -> dict[str, list[CheckResult]]:
    by_id: dict[str, list[CheckResult]] = {}
    for grade in grades:
        for check in grade.checks:
            if check.kind == "outcome":
                by_id.setdefault(check.id, []).append(check)
    return by_id


def _bar(expected: Any) -> tuple[int, float] | None:
    """The side and value of a bar such as `≥ 0.85`, as `expect` states it."""
    if not isinstance(expected, str):
        return None
    sign = {"≥": 1, ">": 1, "≤": -1, "<": -1}.get(expected[:1])
    try:
        return None if sign is None else (sign, float(expected[1:]))
    except ValueError:
        return None
