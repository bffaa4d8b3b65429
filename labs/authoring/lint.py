"""The requirements that reading a lab's files is enough to check: quick, and none of the learner's code runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from labs.authoring.edits import SUFFIX, EditError
from labs.authoring.imports import forbidden_imports
from labs.authoring.lint_answers import lint_answers
from labs.authoring.lint_capstone import lint_capstone
from labs.authoring.variants import WRONG_FIXES, Variant, not_edits, read_variant, variant_paths
from labs.authoring.violation import Violation
from labs.capstones.capstone import Capstone
from labs.grading.catalog import CHAPTERS, Lab
from labs.grading.declarations import KINDS, Declared
from labs.grading.errors import SubmissionFileError
from labs.grading.files import check_syntax
from labs.learner.diff import changed_lines
from labs.learner.hints import HintsError, hints
from labs.learner.lesson import lesson_file

LONGEST_FILE = 200
LARGEST_FIX = 25
FEWEST_WRONG_FIXES = 3
FEWEST_SEEDS = 5
HEADINGS = ("Predict", "Measure", "Diagnose", "Fix", "The detector", "Where it happened", "Exercises")
PLACEHOLDER = re.compile(r"TODO\(author\):\s*(.+?)\s*(?:-->|\"\"\"|\"|$)")


def lint(lab: Lab, declared: Declared) -> list[Violation]:
    """All violations that can be found by reading the lab's files. `declared` is what its checks.py declares."""
    found = [
        *_placeholders(lab),
        *_metadata(lab),
        *_starter(lab),
        *_solution(lab),
        *_probe(lab),
        *_imports(lab),
        *_hints(lab),
        *_variants(lab, declared),
        *lint_answers(lab),
    ]
    if isinstance(lab, Capstone):
        return [*found, *lint_capstone(lab, declared)]
    return [*found, *_place_in_the_catalogue(lab), *_why(lab), *_checks(declared), *_lesson(lab)]


def _placeholders(lab: Lab) -> Iterator[Violation]:
    for path in _author_files(lab):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            found = PLACEHOLDER.search(line)
            if found:
                yield Violation("unfinished", f"{path.name}, line {number}, is not written yet: {found.group(1)}")


def _author_files(lab: Lab) -> Iterable[Path]:
    for folder in (lab.folder, lab.solution):
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".py", ".md", ".toml", SUFFIX) and "__pycache__" not in path.parts:
                yield path
    if lesson_file(lab).is_file():
        yield lesson_file(lab)


def _metadata(lab: Lab) -> Iterator[Violation]:
    if len(set(lab.seeds)) < FEWEST_SEEDS:
        yield Violation(
            "metadata", f"lab.toml: seeds has {len(set(lab.seeds))} different ones; it needs {FEWEST_SEEDS}."
        )
    for name in lab.editable:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            yield Violation("metadata", f"lab.toml: editable {name} must be inside the lab's folder.")


def _place_in_the_catalogue(lab: Lab) -> Iterator[Violation]:
    tens = int(lab.id[0])
    if CHAPTERS[tens] != lab.chapter:
        # "usually": a chapter may have more than nine labs, and the lesson says so
        yield Violation("metadata", f"lab.toml: lab {lab.id} is in the chapter {CHAPTERS[tens]}, not {lab.chapter}.")
    if lab.id.endswith("0"):
        yield Violation("metadata", f"lab.toml: ids end in 1 to 9; {lab.id} does not.")
    if not lab.anchor.urls:
        yield Violation(
            "metadata", "lab.toml: anchor.urls is empty; name the commit, issue or pull request the lab re-creates."
        )
    known = {path.name[3:5] for path in lab.folder.parent.glob("lab[0-9][0-9]_*")}
    for number in lab.prerequisites:
        if number not in known:
            yield Violation("metadata", f"lab.toml: prerequisite {number} is not a lab.")


def _starter(lab: Lab) -> Iterator[Violation]:
    for name in lab.editable:
        path = lab.folder / name
        if not path.is_file():
            yield Violation("starter", f"{name} is missing from {lab.name}; lab.toml lists it as editable.")
            continue
        length = len(path.read_text(encoding="utf-8").splitlines())
        if length > LONGEST_FILE:
            yield Violation(
                "starter", f"{name} has {length} lines; at most {LONGEST_FILE}, so import what is not broken."
            )


def _solution(lab: Lab) -> Iterator[Violation]:
    missing = [name for name in lab.editable if not (lab.solution / name).is_file()]
    for name in missing:
        yield Violation("solution", f"solutions/{lab.name}/{name} is missing: the whole file with the fix.")
    if missing:
        return
    changed = changed_lines(lab, lab.solution)
    if changed > LARGEST_FIX and not isinstance(lab, Capstone):  # which has several fixes
        yield Violation("solution", f"the solution changes {changed} lines of the starter; at most {LARGEST_FIX}.")
    if changed == 0:
        yield Violation("solution", "the solution is the same as the starter: nothing is fixed.")


def _why(lab: Lab) -> Iterator[Violation]:
    why = lab.solution / "why.md"
    if not why.is_file() or not why.read_text(encoding="utf-8").strip():
        yield Violation(
            "solution", f"solutions/{lab.name}/why.md is missing or empty: explain the fix in one paragraph."
        )


def _probe(lab: Lab) -> Iterator[Violation]:
    path = lab.folder / "probe.py"
    if not path.is_file():
        yield Violation("probe", "probe.py is missing: it runs the learner's code and returns what it measured.")
        return
    functions = _functions(path)
    if "symptom" not in functions:
        yield Violation("probe", f"probe.py has no symptom(learner): it prints what `lab run {lab.id}` shows.")
    if lab.rules and "subject" not in functions:
        yield Violation(
            "probe",
            "probe.py has no subject(learner), and lab.toml names rules: it returns debugkit.check's arguments.",
        )


def _functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def _checks(declared: Declared) -> Iterator[Violation]:
    kinds = {check.kind for check in declared.checks}
    for kind in KINDS:
        if kind not in kinds:
            yield Violation("checks", f"checks.py has no check of the kind {kind}; every lab has all three.")


def _imports(lab: Lab) -> Iterator[Violation]:
    for name in ("checks.py", "probe.py", *lab.editable):
        path = lab.folder / name
        for module in forbidden_imports(path) if name.endswith(".py") and path.is_file() else []:
            yield Violation(
                "imports", f"{name} imports {module}; a lab may import labs.vla, labs.grading and what labs share."
            )


def _hints(lab: Lab) -> Iterator[Violation]:
    try:
        hints(lab)
    except HintsError as error:
        yield Violation("hints", str(error))


def _variants(lab: Lab, declared: Declared) -> Iterator[Violation]:
    known = {check.id for check in declared.checks}
    submissions: dict[str, str] = {}
    wrong_fixes = sum(path.parent.name == WRONG_FIXES for path in variant_paths(lab))
    for path in not_edits(lab):
        yield Violation(
            "variants", f"{path.name} is not an edit ({SUFFIX}); `lab dev store` turns a whole file into one."
        )
    for path in variant_paths(lab):
        try:
            variant = read_variant(path)
            files = variant.files(lab)
            for name in (name for name in variant.edit.blocks if name.endswith(".py")):
                check_syntax(f"{variant.label}, applied to {name}", files[name])
        except FileNotFoundError:
            continue  # the starter or the solution is missing, which is a violation of its own
        except (EditError, SubmissionFileError) as error:
            yield Violation("variants", str(error))
            continue
        same = submissions.setdefault(repr(sorted(files.items())), variant.label)
        if same != variant.label:
            yield Violation("variants", f"{variant.label} makes the same submission as {same}.")
        yield from _header(variant, known)
    if wrong_fixes < FEWEST_WRONG_FIXES:
        yield Violation(
            "variants",
            f"wrong_fixes/ has {wrong_fixes}; it needs {FEWEST_WRONG_FIXES}, the ones you would try yourself.",
        )


def _header(variant: Variant, checks: set[str]) -> Iterator[Violation]:
    if variant.wrong:
        if variant.refused_by is None:
            yield Violation("variants", f"{variant.label} has no line `refused_by: <check id>`.")
        elif variant.refused_by not in checks:
            there = ", ".join(sorted(checks))
            yield Violation(
                "variants",
                f"{variant.label} must be refused by {variant.refused_by}, which is not a check. There are: {there}.",
            )
    if not variant.why:
        yield Violation("variants", f"{variant.label} has no line `why: <one sentence>`.")


def _lesson(lab: Lab) -> Iterator[Violation]:
    path = lesson_file(lab)
    if not path.is_file():
        yield Violation("lesson", f"docs/{lab.lesson}.md is missing; docs/_lesson_template.md shows what it needs.")
        return
    found = [line[3:].strip() for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("## ")]
    if [heading for heading in found if heading in HEADINGS] != list(HEADINGS):
        yield Violation(
            "lesson", f"docs/{lab.lesson}.md needs the headings {', '.join(HEADINGS)}, once each and in this order."
        )
