"""Each thing the law asks of a lab's files is asked: spoil one, and the breach names it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import labs
from labs.authoring.content_hash import content_hash
from labs.authoring.law_of_form import breaches_of_form
from labs.authoring.verified import why_not_verified, write_verified
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


def laws_broken(lab: Lab, declared: Declared = DECLARED) -> str:
    return "\n".join(f"{breach.law}: {breach.sentence}" for breach in breaches_of_form(lab, declared))


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def test_a_complete_lab_breaks_nothing(lab: Lab) -> None:
    assert laws_broken(lab) == ""


Spoil = Callable[[Path], None]
SPOILED: dict[str, tuple[Spoil, str]] = {
    "two seeds": (lambda root: edit(_lab(root) / "lab.toml", "[1, 2, 3, 4, 5]", "[1, 2]"), "metadata: lab.toml: seeds"),
    "wrong chapter": (lambda root: edit(_lab(root) / "lab.toml", '"shapes"', '"loop"'), "in the chapter shapes"),
    "no such prerequisite": (
        lambda root: edit(_lab(root) / "lab.toml", "editable =", 'prerequisites = ["77"]\neditable ='),
        "prerequisite 77 is no lab",
    ),
    "long starter": (lambda root: _append(_lab(root) / "policy.py", "x = 1\n" * 200), "at most 200"),
    "no starter": (lambda root: (_lab(root) / "policy.py").unlink(), "policy.py is missing"),
    "no solution": (lambda root: (_solution(root) / "policy.py").unlink(), "policy.py is missing: the whole file"),
    "no why": (lambda root: (_solution(root) / "why.md").write_text("\n"), "why.md is missing or empty"),
    "large fix": (lambda root: _append(_solution(root) / "policy.py", "x = 1\n" * 30), "changes 31 lines"),
    "no fix": (
        lambda root: (_solution(root) / "policy.py").write_bytes((_lab(root) / "policy.py").read_bytes()),
        "the solution is the starter",
    ),
    "no probe": (lambda root: (_lab(root) / "probe.py").unlink(), "probe.py is missing"),
    "no symptom": (lambda root: edit(_lab(root) / "probe.py", "def symptom", "def symptoms"), "no symptom(learner)"),
    "no subject": (
        lambda root: (
            edit(_lab(root) / "probe.py", "def subject", "def a_subject"),
            edit(_lab(root) / "lab.toml", "seeds =", 'rules = ["DK002"]\nseeds ='),
        ),
        "no subject(learner)",
    ),
    "two hints": (lambda root: edit(_lab(root) / "hints.md", "## 3", "### 3"), "hints: "),
    "two wrong fixes": (lambda root: (_lab(root) / "wrong_fixes" / "clamp.py").unlink(), "wrong_fixes/ has 2"),
    "no header": (
        lambda root: edit(_lab(root) / "wrong_fixes" / "clamp.py", "# refused_by", "# refused"),
        "clamp.py does not open with",
    ),
    "no such check": (
        lambda root: edit(_lab(root) / "wrong_fixes" / "clamp.py", "test_equals_the_reference", "test_equals"),
        "refused by test_equals, which is no check",
    ),
    "no reason": (lambda root: edit(_lab(root) / "wrong_fixes" / "clamp.py", "# why:", "# so:"), "no `# why:"),
    "no lesson": (lambda root: _lesson(root).unlink(), "03_swapped_order.md is missing"),
    "heading out of order": (
        lambda root: edit(_lesson(root), "## Measure", "## Measuring"),
        "needs the headings Predict, Measure",
    ),
    "a placeholder": (
        lambda root: edit(_lesson(root), "A round trip.", "TODO(author): which rule sees it"),
        "is not written yet: which rule sees it",
    ),
}


@pytest.mark.parametrize("spoiled", SPOILED)
def test_a_spoiled_lab_is_refused_by_name(collection: Path, spoiled: str) -> None:
    spoil, said = SPOILED[spoiled]
    spoil(collection)
    catalog.all_labs.cache_clear()
    assert said in laws_broken(catalog.find("03"))


@pytest.mark.parametrize("kind", ["behaviour", "invariant", "outcome"])
def test_every_kind_of_check_is_asked_for(lab: Lab, kind: str) -> None:
    without = Declared(tuple(check for check in CHECKS if check.kind != kind), ())
    assert f"no check of the kind {kind}" in laws_broken(lab, without)


def test_a_verified_lab_says_when_its_files_changed(lab: Lab) -> None:
    assert "never fully verified" in str(why_not_verified(lab))
    write_verified(lab, grades=12, margins={"test_reaches": None})
    assert why_not_verified(lab) is None
    _append(lab.folder / "checks.py", "\n# one more line\n")
    assert "has changed since" in str(why_not_verified(lab))


def test_the_hash_is_of_names_and_contents_alone(lab: Lab) -> None:
    before = content_hash(lab)
    (lab.folder / "__pycache__").mkdir()
    (lab.folder / "__pycache__" / "policy.pyc").write_bytes(b"1")
    (lab.folder / "policy.py").touch()
    assert content_hash(lab) == before
    (lab.folder / "wrong_fixes" / "clamp.py").rename(lab.folder / "wrong_fixes" / "clip.py")
    assert content_hash(lab) != before


def test_a_shipped_labs_verification_is_about_its_files() -> None:
    verified = [lab for lab in catalog.all_labs() if (lab.solution / "verified.json").exists()]
    assert [why for lab in verified if (why := why_not_verified(lab)) is not None] == []


def _lab(root: Path) -> Path:
    return root / "labs" / "lab03_swapped_order"


def _solution(root: Path) -> Path:
    return root / "solutions" / "lab03_swapped_order"


def _lesson(root: Path) -> Path:
    return root / "docs" / "lessons" / "shapes" / "03_swapped_order.md"


def _append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


def test_every_lab_folder_has_its_facts() -> None:
    shipped = Path(labs.__file__).parent
    bare = [folder.name for folder in shipped.glob("lab[0-9][0-9]_*") if not (folder / "lab.toml").is_file()]
    assert not bare, f"without lab.toml: {', '.join(sorted(bare))}"
