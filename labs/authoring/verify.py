"""`lab dev verify`: holds one lab against the collection's law."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labs.authoring import law_of_grading as law
from labs.authoring.breach import Breach
from labs.authoring.hollow import hollow
from labs.authoring.law_of_form import breaches_of_form
from labs.authoring.law_of_grading import Graded
from labs.authoring.verified import write_verified
from labs.authoring.wrong_fix_files import WrongFixFile, alternatives, as_submission, read_wrong_fixes
from labs.grading import diagnose, grade
from labs.grading.catalog import Lab
from labs.grading.declarations import KINDS, Declared, Kind
from labs.grading.errors import CheckError, GradingError
from labs.grading.grades import Grade
from labs.grading.runner import declared_by

SEEDS = 5
"""Seeds on which every submission meets the structural checks, which are cheap."""
QUICK_OUTCOMES = 2
"""Seeds on which the quick verification trains and rolls out too; `--full` does it on all five."""
STRUCTURAL: tuple[Kind, ...] = ("behaviour", "invariant")
Submission = dict[str, str | bytes]
Seeds = tuple[int, ...]


@dataclass
class Verification:
    """What was found in one lab, and in how many grades."""

    lab: Lab
    breaches: list[Breach] = field(default_factory=list)
    grades: int = 0
    margins: dict[str, float | None] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the lab keeps the law."""
        return not self.breaches

    def to_json(self) -> dict[str, Any]:
        """This lab's part of the JSON document."""
        return {
            "id": self.lab.id,
            "slug": self.lab.slug,
            "ok": self.ok,
            "grades": self.grades,
            "breaches": [{"law": breach.law, "sentence": breach.sentence} for breach in self.breaches],
        }


def verify(lab: Lab, server: Any, *, full: bool = False, say: Callable[[str], None] = lambda _: None) -> Verification:
    """Read the lab, then grade its starter, solutions, wrong fixes and a hollow one with a running ForkServer.

    A lab whose form is wrong is not graded. Structural checks run on five seeds, outcomes on two, with `full` on five
    as well, and then the result is recorded if nothing is found. `say` is told what is being done. Raises OSError,
    SandboxError.
    """
    result = Verification(lab)
    try:
        declared = declared_by(lab)
        result.breaches += breaches_of_form(lab, declared)
    except (CheckError, SyntaxError) as error:
        result.breaches.append(Breach("checks", f"checks.py, or another file of the lab, cannot be read: {error}"))
    if result.ok:
        bench = _Bench(lab, declared, server, full, say, result)
        result.breaches += bench.breaches()
    if full and result.ok:
        write_verified(lab, result.grades, result.margins)
    return result


@dataclass
class _Bench:
    """Grades a lab's submissions and collects what the law says of them."""

    lab: Lab
    declared: Declared
    server: Any
    full: bool
    say: Callable[[str], None]
    result: Verification

    def breaches(self) -> Iterator[Breach]:
        starter = self._grade("the starter", self._folder(self.lab.folder), structural=self._seeds)
        yield from law.judge_starter(starter, self.declared)
        yield from self._right()
        yield from law.judge_recognisers(self.declared, read_wrong_fixes(self.lab))
        wrongs = []
        for wrong in read_wrong_fixes(self.lab):
            graded = self._wrong(wrong)
            yield from law.judge_wrong(wrong, graded, self.declared)
            wrongs.append(graded)
        hollowed = self._grade("a hollow solution", self._hollow(), trained=self._seeds[:1])
        yield from law.judge_hollow(hollowed)
        yield from law.judge_checks_can_fail(self.declared, [starter, *wrongs, hollowed])
        yield from self._rules()

    def _right(self) -> Iterator[Breach]:
        solution = self._grade_right("the solution", self._folder(self.lab.solution))
        yield from law.judge_right(solution, self.declared)
        yield from law.judge_margin(solution)
        self.result.margins = law.margins(solution)
        for path in alternatives(self.lab):
            files = as_submission(self.lab, path, self.lab.solution)
            yield from law.judge_right(self._grade_right(path.name, files), self.declared)

    def _wrong(self, wrong: WrongFixFile) -> Graded:
        """Its grades; it is trained only where an outcome is what refuses it."""
        name, files = f"wrong_fixes/{wrong.name}", as_submission(self.lab, wrong.path, self.lab.folder)
        if any(check.id == wrong.refused_by and check.kind == "outcome" for check in self.declared.checks):
            return self._grade(name, files, trained=self._trained, all_checks=True)
        return self._grade(name, files, structural=self._seeds)

    def _rules(self) -> Iterator[Breach]:
        if not self.lab.rules:
            return
        self.say("debugkit on the starter and the solution")
        try:
            on_starter = self._codes(self.lab.folder)
            on_solution = self._codes(self.lab.solution)
        except GradingError as error:
            yield Breach("rules", f"debugkit could not examine the lab: {error}")
            return
        yield from law.judge_rules(self.lab.rules, on_starter, on_solution)

    def _codes(self, folder: Path) -> list[str]:
        report = diagnose(self.lab, self._folder(folder), server=self.server)
        return sorted({finding["code"] for finding in report["findings"]})

    @property
    def _seeds(self) -> Seeds:
        return self.lab.seeds[:SEEDS]

    @property
    def _trained(self) -> Seeds:
        return self._seeds if self.full else self._seeds[:QUICK_OUTCOMES]

    def _grade_right(self, name: str, files: Submission) -> Graded:
        return self._grade(name, files, trained=self._trained, structural=self._seeds[len(self._trained) :])

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
                server=self.server,
            )
            grades.append(graded)
        self.result.grades += len(grades)
        return Graded(name, tuple(grades))

    def _folder(self, folder: Path) -> Submission:
        return {name: (folder / name).read_bytes() for name in self.lab.editable}

    def _hollow(self) -> Submission:
        files = self._folder(self.lab.solution)
        for name in self.lab.editable:
            if name.endswith(".py"):
                source = hollow(_text(files[name]))
                ast.parse(source)
                files[name] = source
        return files


def _text(content: str | bytes) -> str:
    return content if isinstance(content, str) else content.decode("utf-8")
