"""`lab dev verify`: checks one lab against all requirements."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from labs.authoring import grading_rules
from labs.authoring.chance import refusals_by_chance
from labs.authoring.grading_rules import Graded
from labs.authoring.lesson_run import difference_from_lesson
from labs.authoring.lint import lint
from labs.authoring.lint_capstone import judge_partial_fixes, judge_starter_has_every_fault
from labs.authoring.mutation.record import FILE as MUTANTS
from labs.authoring.parts import SOLUTION, STARTER, Changes
from labs.authoring.plan import Scope
from labs.authoring.stub import stub
from labs.authoring.variants import Variant, alternatives, base_files, wrong_fixes
from labs.authoring.verified import complete, renew, why_stale, write_verified
from labs.authoring.violation import Violation
from labs.capstones.capstone import Capstone
from labs.grading import diagnose, grade
from labs.grading.catalog import Lab
from labs.grading.declarations import KINDS, STRUCTURAL, Declared
from labs.grading.errors import CheckError, GradingError
from labs.grading.grades import Grade
from labs.grading.runner import declared_by
from labs.grading.sandbox.launch import Launcher

SEEDS = 5
"""Seeds on which a full verification grades every submission, and a quick one the starter and the correct fixes."""
QUICK = 2
"""Seeds on which a quick verification trains and rolls out, and on which it grades the wrong fixes."""
Submission = dict[str, str]
Seeds = tuple[int, ...]


@dataclass
class Verification:
    """The violations found in one lab, and the number of grades made."""

    lab: Lab
    violations: list[Violation] = field(default_factory=list)
    grades: int = 0
    margins: dict[str, float | None] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether no violation was found."""
        return not self.violations

    def to_json(self) -> dict[str, Any]:
        """This lab's part of the JSON document."""
        return {
            "id": self.lab.id,
            "slug": self.lab.slug,
            "ok": self.ok,
            "grades": self.grades,
            "violations": [{"rule": one.rule, "sentence": one.sentence} for one in self.violations],
        }


def verify(
    lab: Lab,
    launcher: Launcher,
    *,
    scope: Scope = "all",
    full: bool = False,
    chance_seeds: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> Verification:
    """Read the lab's files, then grade its starter, solution, alternatives, wrong fixes and stub.

    A lab with violations in its files is not graded. Structural checks run on five seeds, those of wrong fixes and all
    outcomes on two; with `full` everything on five, and the result is recorded if there is no violation. `scope` can
    leave the grading out. `chance_seeds` is the number of seeds on which the structural checks of the solution and the
    alternatives run as well, so that none refuses a correct fix by chance; they have a record of their own, and
    recorded seeds are not repeated. `say` receives the name of each step. Raises OSError, SandboxError, BenchError.
    """
    result = Verification(lab)
    try:
        declared = declared_by(lab)
        result.violations += lint(lab, declared)
    except (CheckError, SyntaxError) as error:
        result.violations.append(Violation("checks", f"checks.py or another file of the lab cannot be read: {error}"))
    stale = why_stale(lab) if scope == "changes" else None
    if result.ok and scope != "files":
        grading = _Grading(lab, declared, launcher, full, say, result, None if stale is None else stale.changes)
        result.violations += grading.violations_of_rules() if scope == "rules" else grading.violations()
    if result.ok and chance_seeds:
        result.violations += refusals_by_chance(lab, launcher, chance_seeds, say)
    if full and scope in ("all", "changes") and result.ok:
        write_verified(lab, result.grades, result.margins, before=None if stale is None else stale.record)
    if full and scope == "rules" and result.ok:
        renew(lab)
    if full and scope == "files" and result.ok:
        complete(lab)
    return result


@dataclass
class _Grading:
    """Grades a lab's submissions and collects the violations."""

    lab: Lab
    declared: Declared
    launcher: Launcher
    full: bool
    say: Callable[[str], None]
    result: Verification
    changes: Changes | None = None
    """Grade only what depends on these; None: everything."""

    def violations(self) -> Iterator[Violation]:
        starter = self._grade(STARTER, base_files(self.lab, "starter"), structural=self._seeds)
        yield from grading_rules.judge_starter(starter, self.declared)
        yield from self._correct()
        wrongs = wrong_fixes(self.lab)
        yield from grading_rules.judge_recognisers(self.declared, wrongs)
        if (self.lab.folder / MUTANTS).is_file():
            yield from grading_rules.judge_near_misses(self.declared, wrongs)
        refused = []
        asked = [wrong for wrong in wrongs if self._is_to_grade(wrong)]
        for wrong in asked:
            graded = self._wrong(wrong)
            yield from grading_rules.judge_wrong(wrong, graded, self.declared)
            refused.append(graded)
        if isinstance(self.lab, Capstone):
            yield from judge_starter_has_every_fault(self.lab, starter)
            yield from judge_partial_fixes(self.lab, wrongs, refused)
        if any(name.endswith(".py") for name in self.lab.editable):
            stubbed = self._grade("the stub", self._stub(), trained=self._seeds[:1])
            yield from grading_rules.judge_stub(stubbed)
            refused.append(stubbed)
        known = set() if self.changes is None else {one.id for one in self.declared.checks} - self.changes.checks
        yield from grading_rules.judge_checks_can_fail(self.declared, [starter, *refused], known)
        yield from self.violations_of_rules()
        if self.full and not isinstance(self.lab, Capstone):
            yield from self._shown_run()

    def _shown_run(self) -> Iterator[Violation]:
        """The lesson begins with the output of `lab run`, which must be what the starter prints."""
        self.say("the run that the lesson shows")
        found = difference_from_lesson(self.lab, self.launcher)
        if found is not None:
            what = f"docs/{self.lab.lesson}.md does not show what `lab run {self.lab.id}` prints"
            yield Violation("lesson", f"{what}:\n{found}")

    def violations_of_rules(self) -> Iterator[Violation]:
        if not self.lab.rules:
            return
        self.say("debugkit on the starter and the correct fixes")
        try:
            on_starter = self._findings(base_files(self.lab, "starter"))
            on_correct = {"the solution": self._findings(base_files(self.lab, "solution"))}
            on_correct |= {one.label: self._findings(one.files(self.lab)) for one in alternatives(self.lab)}
        except GradingError as error:
            yield Violation("rules", f"debugkit could not examine the lab: {error}")
            return
        codes = [sorted({one["code"] for one in found}) for found in (on_starter, on_correct["the solution"])]
        yield from grading_rules.judge_rules(self.lab.rules, *codes)
        for name, found in on_correct.items():
            yield from grading_rules.judge_silence(name, found)

    def _correct(self) -> Iterator[Violation]:
        solution = self._grade_correct(SOLUTION, base_files(self.lab, "solution"))
        yield from grading_rules.judge_correct(solution, self.declared)
        yield from grading_rules.judge_margin(solution)
        self.result.margins = grading_rules.margins(solution)
        for alternative in alternatives(self.lab):
            graded = self._grade_correct(alternative.label, alternative.files(self.lab))
            yield from grading_rules.judge_correct(graded, self.declared)

    def _is_to_grade(self, wrong: Variant) -> bool:
        return self._is_in_question(wrong) or (self.changes is not None and self.changes.names)

    def _is_in_question(self, wrong: Variant) -> bool:
        """Whether the check that it names may no longer refuse it."""
        changes = self.changes
        return changes is None or wrong.label in changes.added or wrong.refused_by in changes.checks

    def _wrong(self, wrong: Variant) -> Graded:
        """Its grades; it is trained only if an outcome check must refuse it."""
        files = wrong.files(self.lab)
        seeds = self._some_seeds if self._is_in_question(wrong) else self._seeds[:QUICK]
        if any(check.id == wrong.refused_by and check.kind == "outcome" for check in self.declared.checks):
            return self._grade(wrong.label, files, trained=seeds, all_checks=True)
        return self._grade(wrong.label, files, structural=seeds)

    def _findings(self, files: Submission) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = diagnose(self.lab, files, server=self.launcher)["findings"]
        return found

    @property
    def _seeds(self) -> Seeds:
        return self.lab.seeds[:SEEDS]

    @property
    def _some_seeds(self) -> Seeds:
        """Those of what a quick verification does on few seeds."""
        return self._seeds if self.full else self._seeds[:QUICK]

    def _grade_correct(self, name: str, files: Submission) -> Graded:
        trained = self._some_seeds if self._is_to_train(name) else ()
        return self._grade(name, files, trained=trained, structural=self._seeds[len(trained) :])

    def _is_to_train(self, correct: str) -> bool:
        changes = self.changes
        outcomes = {check.id for check in self.declared.checks if check.kind == "outcome"}
        return changes is None or correct in changes.added or not outcomes.isdisjoint(changes.checks)

    def _grade(
        self, name: str, files: Submission, *, trained: Seeds = (), structural: Seeds = (), all_checks: bool = False
    ) -> Graded:
        """Whole grades with the seeds of `trained`, grades without outcomes with those of `structural`."""
        grades: list[Grade] = []
        for seed in (*trained, *structural):
            self.say(f"{name}, seed {seed}")
            kinds = KINDS if seed in trained else STRUCTURAL
            graded = grade(
                self.lab,
                files,
                seed=seed,
                outcome_seed=seed,
                kinds=kinds,
                all_checks=all_checks,
                answers=False,
                server=self.launcher,
            )
            grades.append(graded)
        self.result.grades += len(grades)
        return Graded(name, tuple(grades))

    def _stub(self) -> Submission:
        files = base_files(self.lab, "solution")
        for name in self.lab.editable:
            if name.endswith(".py"):
                files[name] = stub(files[name])
                ast.parse(files[name])
        return files
