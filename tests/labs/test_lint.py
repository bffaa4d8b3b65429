"""Every requirement on a lab's files: spoil one of them, and a violation names it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import labs
from edited_files import append, rewrite
from labs.authoring.lint import lint
from labs.grading import catalog
from labs.grading.catalog import Lab
from labs.grading.declarations import Check, Declared

CHECKS = tuple(
    Check(name, kind, "a title", "a property", "an instrument", "checks")
    for name, kind in (
        ("test_equals_the_reference", "behaviour"),
        ("test_round_trip", "invariant"),
        ("test_reaches", "outcome"),
    )
)
DECLARED = Declared(CHECKS, ())


def violations(lab: Lab, declared: Declared = DECLARED) -> str:
    return "\n".join(f"{violation.rule}: {violation.sentence}" for violation in lint(lab, declared))


def test_a_complete_lab_has_no_violation(lab: Lab) -> None:
    assert violations(lab) == ""


Spoil = Callable[[Path], None]
SPOILED: dict[str, tuple[Spoil, str]] = {
    "two seeds": (
        lambda root: rewrite(_lab(root) / "lab.toml", "[1, 2, 3, 4, 5]", "[1, 2]"),
        "metadata: lab.toml: seeds",
    ),
    "wrong chapter": (lambda root: rewrite(_lab(root) / "lab.toml", '"shapes"', '"loop"'), "in the chapter shapes"),
    "no such prerequisite": (
        lambda root: rewrite(_lab(root) / "lab.toml", "editable =", 'prerequisites = ["77"]\neditable ='),
        "prerequisite 77 is not a lab",
    ),
    "long starter": (lambda root: append(_lab(root) / "policy.py", "x = 1\n" * 200), "at most 200"),
    "no starter": (lambda root: (_lab(root) / "policy.py").unlink(), "policy.py is missing"),
    "no solution": (lambda root: (_solution(root) / "policy.py").unlink(), "policy.py is missing: the whole file"),
    "no why": (lambda root: (_solution(root) / "why.md").write_text("\n"), "why.md is missing or empty"),
    "large fix": (lambda root: append(_solution(root) / "policy.py", "x = 1\n" * 30), "changes 31 lines"),
    "no fix": (
        lambda root: (_solution(root) / "policy.py").write_bytes((_lab(root) / "policy.py").read_bytes()),
        "the solution is the same as the starter",
    ),
    "no probe": (lambda root: (_lab(root) / "probe.py").unlink(), "probe.py is missing"),
    "no symptom": (lambda root: rewrite(_lab(root) / "probe.py", "def symptom", "def symptoms"), "no symptom(learner)"),
    "no subject": (
        lambda root: (
            rewrite(_lab(root) / "probe.py", "def subject", "def a_subject"),
            rewrite(_lab(root) / "lab.toml", "seeds =", 'rules = ["DK002"]\nseeds ='),
        ),
        "no subject(learner)",
    ),
    "another lab imported": (
        lambda root: append(_lab(root) / "probe.py", "from labs.lab03_gripper_never_closes import policy\n"),
        "imports: probe.py imports labs.lab03_gripper_never_closes; a lab may import",
    ),
    "the command line imported": (
        lambda root: append(_lab(root) / "policy.py", "import labs.cli.console\n"),
        "imports: policy.py imports labs.cli;",
    ),
    "two hints": (lambda root: rewrite(_lab(root) / "hints.md", "## 3", "### 3"), "hints: "),
    "two wrong fixes": (lambda root: (_lab(root) / "wrong_fixes" / "clamp.diff").unlink(), "wrong_fixes/ has 2"),
    "no check named": (
        lambda root: rewrite(_clamp(root), "refused_by: test_equals_the_reference\n", ""),
        "clamp.diff has no line `refused_by",
    ),
    "misspelt header": (
        lambda root: rewrite(_clamp(root), "refused_by", "refused"),
        "variants: wrong_fixes/clamp.diff, line 1: expected one of `refused_by",
    ),
    "no such check": (
        lambda root: rewrite(_clamp(root), "test_equals_the_reference", "test_equals"),
        "refused by test_equals, which is not a check",
    ),
    "no reason": (lambda root: rewrite(_clamp(root), "why: Clamping", "why:\nwhy_not: Clamping"), "clamp.diff, line 3"),
    "an empty reason": (
        lambda root: rewrite(_alternative(root), "One fused operation for the product and the sum.", ""),
        "alternative_addcmul.diff has no line `why",
    ),
    "an edit that does not fit": (
        lambda root: rewrite(_clamp(root), "-    return (action + mean) * std", "-    return (action + mean) / std"),
        "wrong_fixes/clamp.diff, line 4: starter/policy.py has no such lines",
    ),
    "an edit that is not Python": (
        lambda root: rewrite(_clamp(root), "clamp(-1, 1)", "clamp(-1, 1"),
        "wrong_fixes/clamp.diff, applied to policy.py, line ",
    ),
    "a whole file": (
        lambda root: (_lab(root) / "wrong_fixes" / "mine.py").write_bytes((_lab(root) / "policy.py").read_bytes()),
        "mine.py is not an edit (.diff); `lab dev store`",
    ),
    "the same edit twice": (
        lambda root: (_lab(root) / "wrong_fixes" / "twice.diff").write_bytes(_clamp(root).read_bytes()),
        "wrong_fixes/twice.diff makes the same submission as wrong_fixes/clamp.diff",
    ),
    "no lesson": (lambda root: _lesson(root).unlink(), "03_swapped_order.md is missing"),
    "heading out of order": (
        lambda root: rewrite(_lesson(root), "## Measure", "## Measuring"),
        "needs the headings Predict, Measure",
    ),
    "a placeholder": (
        lambda root: rewrite(_lesson(root), "A round trip.", "TODO(author): which rule sees it"),
        "is not written yet: which rule sees it",
    ),
}


@pytest.mark.parametrize("spoiled", SPOILED)
def test_a_spoiled_lab_is_refused_by_name(collection: Path, spoiled: str) -> None:
    spoil, said = SPOILED[spoiled]
    spoil(collection)
    catalog.all_labs.cache_clear()
    assert said in violations(catalog.find("03"))


def test_the_library_the_grader_and_what_labs_share_may_be_imported(lab: Lab) -> None:
    append(lab.folder / "checks.py", "import labs.vla.policy\nfrom labs.invariants import random_batch\n")
    assert violations(lab) == ""


@pytest.mark.parametrize("kind", ["behaviour", "invariant", "outcome"])
def test_every_kind_of_check_is_required(lab: Lab, kind: str) -> None:
    without = Declared(tuple(check for check in CHECKS if check.kind != kind), ())
    assert f"no check of the kind {kind}" in violations(lab, without)


def _lab(root: Path) -> Path:
    return root / "labs" / "lab03_swapped_order"


def _solution(root: Path) -> Path:
    return root / "solutions" / "lab03_swapped_order"


def _clamp(root: Path) -> Path:
    return _lab(root) / "wrong_fixes" / "clamp.diff"


def _alternative(root: Path) -> Path:
    return _solution(root) / "alternative_addcmul.diff"


def _lesson(root: Path) -> Path:
    return root / "docs" / "lessons" / "shapes" / "03_swapped_order.md"


def test_every_lab_folder_has_its_facts() -> None:
    shipped = Path(labs.__file__).parent
    bare = [folder.name for folder in shipped.glob("lab[0-9][0-9]_*") if not (folder / "lab.toml").is_file()]
    assert not bare, f"without lab.toml: {', '.join(sorted(bare))}"
