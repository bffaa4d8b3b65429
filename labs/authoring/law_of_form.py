"""What can be asked of a lab by reading its files: everything here is quick and runs no learner's code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from labs.authoring.breach import Breach
from labs.authoring.wrong_fix_files import WrongFixFile, read_wrong_fixes
from labs.grading.catalog import CHAPTERS, Lab
from labs.grading.declarations import KINDS, Declared
from labs.learner.diff import changed_lines
from labs.learner.hints import HintsError, hints
from labs.learner.lesson import lesson_file

LONGEST_FILE = 200
LARGEST_FIX = 25
FEWEST_WRONG_FIXES = 3
FEWEST_SEEDS = 5
HEADINGS = ("Predict", "Measure", "Diagnose", "Fix", "The detector", "Where it happened", "Exercises")
PLACEHOLDER = re.compile(r"TODO\(author\):\s*(.+?)\s*(?:-->|\"\"\"|\"|$)")


def breaches_of_form(lab: Lab, declared: Declared) -> list[Breach]:
    """Everything that reading the lab's files finds wrong. `declared` is what its checks.py declares."""
    return [
        *_placeholders(lab),
        *_metadata(lab),
        *_starter(lab),
        *_solution(lab),
        *_probe(lab),
        *_checks(declared),
        *_hints(lab),
        *_wrong_fixes(lab, declared),
        *_lesson(lab),
    ]


def _placeholders(lab: Lab) -> Iterator[Breach]:
    for path in _author_files(lab):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            found = PLACEHOLDER.search(line)
            if found:
                yield Breach("written", f"{path.name}, line {number}, is not written yet: {found.group(1)}")


def _author_files(lab: Lab) -> Iterable[Path]:
    for folder in (lab.folder, lab.solution):
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".py", ".md", ".toml") and "__pycache__" not in path.parts:
                yield path
    if lesson_file(lab).is_file():
        yield lesson_file(lab)


def _metadata(lab: Lab) -> Iterator[Breach]:
    tens = int(lab.id[0])
    if CHAPTERS[tens] != lab.chapter:
        # "usually": a chapter may grow past nine labs, and the lesson says so
        yield Breach("metadata", f"lab.toml: lab {lab.id} is in the chapter {CHAPTERS[tens]}, not {lab.chapter}.")
    if lab.id.endswith("0"):
        yield Breach("metadata", f"lab.toml: ids end in 1 to 9, so {lab.id} is none.")
    if len(set(lab.seeds)) < FEWEST_SEEDS:
        yield Breach(
            "metadata", f"lab.toml: seeds needs {FEWEST_SEEDS} different ones; there are {len(set(lab.seeds))}."
        )
    if not lab.anchor.urls:
        yield Breach(
            "metadata", "lab.toml: anchor.urls is empty; name the commit, issue or pull request it re-creates."
        )
    for name in lab.editable:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            yield Breach("metadata", f"lab.toml: editable {name} must be inside the lab's folder.")
    known = {path.name[3:5] for path in lab.folder.parent.glob("lab[0-9][0-9]_*")}
    for number in lab.prerequisites:
        if number not in known:
            yield Breach("metadata", f"lab.toml: prerequisite {number} is no lab.")


def _starter(lab: Lab) -> Iterator[Breach]:
    for name in lab.editable:
        path = lab.folder / name
        if not path.is_file():
            yield Breach("starter", f"{name} is missing from {lab.name}; lab.toml says a learner edits it.")
            continue
        length = len(path.read_text(encoding="utf-8").splitlines())
        if length > LONGEST_FILE:
            yield Breach("starter", f"{name} has {length} lines; at most {LONGEST_FILE}, so import what is not broken.")


def _solution(lab: Lab) -> Iterator[Breach]:
    missing = [name for name in lab.editable if not (lab.solution / name).is_file()]
    for name in missing:
        yield Breach("solution", f"solutions/{lab.name}/{name} is missing: the whole file, mended.")
    why = lab.solution / "why.md"
    if not why.is_file() or not why.read_text(encoding="utf-8").strip():
        yield Breach(
            "solution", f"solutions/{lab.name}/why.md is missing or empty: say in a paragraph why it is right."
        )
    if missing:
        return
    changed = changed_lines(lab, lab.solution)
    if changed > LARGEST_FIX:
        yield Breach("solution", f"the solution changes {changed} lines of the starter; at most {LARGEST_FIX}.")
    if changed == 0:
        yield Breach("solution", "the solution is the starter: nothing is mended.")


def _probe(lab: Lab) -> Iterator[Breach]:
    path = lab.folder / "probe.py"
    if not path.is_file():
        yield Breach("probe", "probe.py is missing: it runs beside the learner's code and returns what was measured.")
        return
    functions = _functions(path)
    if "symptom" not in functions:
        yield Breach("probe", f"probe.py has no symptom(learner): it prints what `lab run {lab.id}` shows.")
    if lab.rules and "subject" not in functions:
        yield Breach(
            "probe",
            "probe.py has no subject(learner), and lab.toml names rules: it gives debugkit.check its arguments.",
        )


def _functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def _checks(declared: Declared) -> Iterator[Breach]:
    kinds = {check.kind for check in declared.checks}
    for kind in KINDS:
        if kind not in kinds:
            yield Breach("checks", f"checks.py has no check of the kind {kind}; every lab has all three.")


def _hints(lab: Lab) -> Iterator[Breach]:
    try:
        hints(lab)
    except HintsError as error:
        yield Breach("hints", str(error))


def _wrong_fixes(lab: Lab, declared: Declared) -> Iterator[Breach]:
    files = read_wrong_fixes(lab)
    if len(files) < FEWEST_WRONG_FIXES:
        yield Breach(
            "wrong fixes", f"wrong_fixes/ has {len(files)}; at least {FEWEST_WRONG_FIXES}, the ones you would try."
        )
    known = {check.id for check in declared.checks}
    for file in files:
        yield from _header(file, known)


def _header(file: WrongFixFile, checks: set[str]) -> Iterator[Breach]:
    where = f"wrong_fixes/{file.name}"
    if file.refused_by is None:
        yield Breach("wrong fixes", f"{where} does not open with `# refused_by: <check id>`.")
    elif file.refused_by not in checks:
        there = ", ".join(sorted(checks))
        yield Breach(
            "wrong fixes", f"{where} is to be refused by {file.refused_by}, which is no check. There are: {there}."
        )
    if not file.why:
        yield Breach("wrong fixes", f"{where} has no `# why: one sentence` below its first line.")


def _lesson(lab: Lab) -> Iterator[Breach]:
    path = lesson_file(lab)
    if not path.is_file():
        yield Breach("lesson", f"docs/{lab.lesson}.md is missing; docs/_lesson_template.md is its shape.")
        return
    found = [line[3:].strip() for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("## ")]
    if [heading for heading in found if heading in HEADINGS] != list(HEADINGS):
        yield Breach(
            "lesson", f"docs/{lab.lesson}.md needs the headings {', '.join(HEADINGS)}, once each and in this order."
        )
