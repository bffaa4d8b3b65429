"""The requirements for a capstone: what reading its files shows, and which faults its grades must show to be gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from labs.authoring.edits import EditError
from labs.authoring.grading_rules import Graded
from labs.authoring.variants import Variant, wrong_fixes
from labs.authoring.violation import Violation
from labs.capstones.capstone import Capstone
from labs.capstones.parts import states_of
from labs.grading.declarations import Declared
from labs.learner.handout import BRIEF, HANDOUT, POST_MORTEM, in_language
from labs.locale import LANGUAGES

ONLY = "only_"
"""A wrong fix of this name leaves one fault, the one whose check refuses it, and removes every other."""


def lint_capstone(capstone: Capstone, declared: Declared) -> Iterator[Violation]:
    """What a capstone needs and a lab does not: texts in each language, faults with checks, and partial fixes."""
    yield from _texts(capstone)
    yield from _faults(capstone, declared)
    yield from _partial_fixes(capstone)


def _texts(capstone: Capstone) -> Iterator[Violation]:
    handout = capstone.folder / HANDOUT
    for folder, name in ((handout, BRIEF), (handout, POST_MORTEM), (capstone.solution, POST_MORTEM)):
        for path in (folder / in_language(name, language) for language in LANGUAGES):
            if not path.is_file() or not path.read_text(encoding="utf-8").strip():
                yield Violation("capstone", f"{path.parent.name}/{path.name} is missing or empty.")


def _faults(capstone: Capstone, declared: Declared) -> Iterator[Violation]:
    known = {check.id for check in declared.checks}
    used = Counter(name for fault in capstone.faults for name in fault.checks)
    for name, times in used.items():
        if name not in known:
            yield Violation("capstone", f"capstone.toml: {name} is not a check. There are: {', '.join(sorted(known))}.")
        if times > 1:
            yield Violation("capstone", f"capstone.toml: {name} belongs to {times} faults; a check belongs to one.")


def _partial_fixes(capstone: Capstone) -> Iterator[Violation]:
    if len(capstone.faults) == 1:
        return
    try:
        refusing = {wrong.refused_by for wrong in wrong_fixes(capstone) if wrong.name.startswith(ONLY)}
    except EditError:
        return  # a violation of its own
    for number, fault in enumerate(capstone.faults, start=1):
        if not refusing & set(fault.checks):
            yield Violation(
                "capstone",
                f"no wrong_fixes/{ONLY}….diff is refused by a check of fault {number}: it removes every other fault.",
            )


def judge_starter_has_every_fault(capstone: Capstone, starter: Graded) -> Iterator[Violation]:
    """No fault of the starter is gone."""
    for grade in starter.grades:
        for number, state in enumerate(states_of(capstone, grade), start=1):
            if state == "gone":
                yield Violation("capstone", f"fault {number} is gone in the starter (seed {grade.seed})")


def judge_partial_fixes(
    capstone: Capstone, wrongs: Sequence[Variant], refused: Sequence[Graded]
) -> Iterator[Violation]:
    """A partial fix leaves its own fault and no other. `refused` are the grades of `wrongs`, in their order."""
    for wrong, graded in zip(wrongs, refused, strict=True):
        if not wrong.name.startswith(ONLY):
            continue
        left = {number for number, fault in enumerate(capstone.faults) if wrong.refused_by in fault.checks}
        for grade in graded.grades:
            there = {number for number, state in enumerate(states_of(capstone, grade)) if state != "gone"}
            if there != left:
                shown = ", ".join(str(number + 1) for number in sorted(there)) or "none"
                yield Violation("capstone", f"{wrong.label} leaves the faults {shown} with seed {grade.seed}")
