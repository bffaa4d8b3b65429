"""What can be asked of a lab only by grading it: the starter, the solutions, the wrong fixes, and a hollow submission.

Judged here are grades; whoever makes them (with which fork server, on how many seeds) is `verify`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from labs.authoring.breach import Breach
from labs.authoring.wrong_fix_files import WrongFixFile
from labs.grading.declarations import Declared
from labs.grading.grades import CheckResult, Grade

MARGIN = 3.0
"""Standard errors between an outcome's bar and the solution's mean; below it a right fix fails now and then."""
FEWEST_FOR_MARGIN = 5


@dataclass(frozen=True)
class Graded:
    """One submission's name and its grades, one a seed."""

    name: str
    grades: tuple[Grade, ...]


def judge_starter(starter: Graded, declared: Declared) -> Iterator[Breach]:
    """The starter runs, fails a behaviour check on every seed, and is not taken for a wrong fix."""
    for grade in starter.grades:
        failed = [check for check in grade.failed_checks if check.kind == "behaviour"]
        if grade.verdict != "failed" or not failed:
            why = grade.reason or grade.verdict
            yield Breach("starter fails", f"the starter is not refused by a behaviour check (seed {grade.seed}): {why}")
    yield from _recognised(starter, declared)


def judge_right(right: Graded, declared: Declared) -> Iterator[Breach]:
    """The solution, or an alternative, passes on every seed and is not taken for a wrong fix."""
    for grade in right.grades:
        if grade.verdict != "passed":
            said = "; ".join(f"{check.id}: {check.message}" for check in _not_passed(grade)) or grade.reason
            yield Breach("solution passes", f"{right.name} does not pass with seed {grade.seed}: {said}")
    yield from _recognised(right, declared)


def judge_margin(right: Graded) -> Iterator[Breach]:
    """Each outcome check's bar is far enough from what the solution reaches over the seeds."""
    for check_id, results in _outcomes(right.grades).items():
        margin = margin_of(results) if len(results) >= FEWEST_FOR_MARGIN else None
        if margin is not None and margin < MARGIN:
            reached = ", ".join(f"{result.measured:.4g}" for result in results)
            yield Breach(
                "margin",
                f"{check_id} holds by {margin:.1f} standard errors, {MARGIN:.0f} are asked: "
                f"reached {reached}, wanted {results[0].expected}",
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


def margins(right: Graded) -> dict[str, float | None]:
    """Each outcome check's margin over the seeds; None where it has no numeric bar, or no spread to measure it by."""
    found: dict[str, float | None] = {}
    for check_id, results in _outcomes(right.grades).items():
        margin = margin_of(results) if len(results) > 1 else None
        found[check_id] = round(margin, 1) if margin is not None and math.isfinite(margin) else None
    return found


def judge_wrong(wrong: WrongFixFile, graded: Graded, declared: Declared) -> Iterator[Breach]:
    """A wrong fix is refused by the check its header names, and is named if there is a recogniser of its name."""
    for grade in graded.grades:
        refusing = {check.id for check in grade.failed_checks}
        if wrong.refused_by not in refusing:
            by = ", ".join(sorted(refusing)) or f"nothing (verdict {grade.verdict}; {grade.reason})"
            yield Breach(
                "wrong fix refused",
                f"{graded.name} is not refused by {wrong.refused_by} with seed {grade.seed}, but by {by}",
            )
    known = {one.name for one in declared.wrong_fixes}
    if wrong.path.stem in known:
        for grade in graded.grades:
            found = declared.recognise(grade.evidence or {})
            if found is None or found[0].name != wrong.path.stem:
                took = "nothing" if found is None else found[0].name
                yield Breach("recognised", f"{graded.name} is recognised as {took} with seed {grade.seed}")


def judge_recognisers(declared: Declared, wrongs: Sequence[WrongFixFile]) -> Iterator[Breach]:
    """Every recogniser has a wrong fix that proves it."""
    files = {wrong.path.stem for wrong in wrongs}
    for recogniser in declared.wrong_fixes:
        if recogniser.name not in files:
            yield Breach("recognised", f"no wrong_fixes/{recogniser.name}.py proves the recogniser of that name")


def judge_hollow(hollow: Graded) -> Iterator[Breach]:
    """Right shapes alone do not pass."""
    for grade in hollow.grades:
        if grade.verdict == "passed":
            yield Breach("not shapes alone", f"zeros of the right shapes pass every check (seed {grade.seed})")


def judge_checks_can_fail(declared: Declared, failing: Sequence[Graded]) -> Iterator[Breach]:
    """Every check refuses something: the starter, a wrong fix, or the hollow submission."""
    failed = {check.id for graded in failing for grade in graded.grades for check in grade.failed_checks}
    for check in declared.checks:
        if check.kind == "behaviour" and check.id not in failed:
            yield Breach("checks can fail", f"{check.id} refuses neither the starter nor any wrong fix")


def judge_rules(wanted: Sequence[str], on_starter: Sequence[str], on_solution: Sequence[str]) -> Iterator[Breach]:
    """The rules in lab.toml fire on the starter and stay silent on the solution."""
    for code in wanted:
        if code not in on_starter:
            there = ", ".join(on_starter) or "none"
            yield Breach("rules", f"{code} does not fire on the starter; these do: {there}")
        if code in on_solution:
            yield Breach("rules", f"{code} fires on the solution")


def _recognised(graded: Graded, declared: Declared) -> Iterator[Breach]:
    for grade in graded.grades:
        found = declared.recognise(grade.evidence or {})
        if found is not None:
            yield Breach("recognised", f"{graded.name} is taken for the wrong fix {found[0].name} (seed {grade.seed})")


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
