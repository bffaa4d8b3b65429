"""Every lesson has the same structure: the failure first, the answer folded, the fix the shipped one."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from docs_modules import english
from labs.grading.catalog import Lab, all_labs

HEADINGS = ["Predict", "Measure", "Diagnose", "Fix", "The detector", "Where it happened", "Exercises"]
DOCS = Path(__file__).resolve().parents[2] / "docs"
LESSONS = [lab for lab in all_labs() if (DOCS / f"{lab.lesson}.md").exists()]

of_each_lesson = pytest.mark.parametrize("lab", LESSONS, ids=lambda lab: lab.id)


def lesson(lab: Lab) -> str:
    """The lesson's text without comments."""
    return re.sub(r"<!--.*?-->", "", (DOCS / f"{lab.lesson}.md").read_text(encoding="utf-8"), flags=re.DOTALL)


def section(text: str, heading: str) -> str:
    """The text between a `##` heading and the next."""
    return re.split(r"^## ", text.split(f"\n## {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def test_every_lab_has_its_lesson() -> None:
    missing = [f"docs/{lab.lesson}.md" for lab in all_labs() if lab not in LESSONS]
    assert not missing, f"labs without a lesson: {', '.join(missing)}"


def test_every_lesson_has_its_lab() -> None:
    pages = {
        page.relative_to(DOCS).with_suffix("").as_posix() for page in english(DOCS.glob("lessons/*/[0-9][0-9]_*.md"))
    }
    assert pages <= {lab.lesson for lab in all_labs()}


def test_the_template_has_the_required_headings() -> None:
    template = (DOCS / "_lesson_template.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", template, re.MULTILINE) == HEADINGS


@of_each_lesson
def test_a_lesson_starts_with_its_labs_title_and_the_verbatim_failure(lab: Lab) -> None:
    title, after = lesson(lab).strip().split("\n", 1)
    assert title == f"# {lab.id} · {lab.title}"
    assert after.lstrip().startswith("```text"), "the first thing under the title is the failure, in a ```text block"


@of_each_lesson
def test_a_lesson_has_the_seven_headings_in_their_order(lab: Lab) -> None:
    outside_code = re.sub(r"^( *)```.*?^\1```", "", lesson(lab), flags=re.DOTALL | re.MULTILINE)
    assert re.findall(r"^## (.+)$", outside_code, re.MULTILINE) == HEADINGS


@of_each_lesson
def test_a_lesson_asks_before_it_measures(lab: Lab) -> None:
    asked = section(lesson(lab), "Predict")
    assert "!!! predict" in asked
    assert "?" in asked


@of_each_lesson
@pytest.mark.parametrize(("heading", "block"), [("Diagnose", "diagnose"), ("Fix", "fix")])
def test_diagnosis_and_fix_are_folded(lab: Lab, heading: str, block: str) -> None:
    lines = [line for line in section(lesson(lab), heading).splitlines() if line.strip()]
    assert lines, f"nothing under {heading}"
    assert lines[0].startswith(f"??? {block} "), f'the first line under {heading} is `??? {block} "..."`'
    open_lines = [line for line in lines if not line.startswith(("??? ", "    "))]
    assert not open_lines, f"not folded: {open_lines[0]!r}"


@of_each_lesson
def test_the_fix_shown_is_the_shipped_one(lab: Lab) -> None:
    """Each `-` line of the diff is in a file of the lab and not of the solution; each `+` line the other way round."""
    diffs = re.findall(r"^ *```diff\n(.*?)^ *```", section(lesson(lab), "Fix"), re.DOTALL | re.MULTILINE)
    # A line of a YAML list opens with a dash of its own: what counts is the diff's first column.
    lines = [line.rstrip() for diff in diffs for line in textwrap.dedent(diff).splitlines()]
    changed = [
        line for line in lines if line[:1] in ("+", "-") and not line.startswith(("+++", "---")) and line[1:].strip()
    ]
    assert any(line[0] == "+" for line in changed), "the fix is a ```diff block with at least one + line"
    starter, solution = (_lines(folder, lab) for folder in (lab.folder, lab.solution))
    for line in changed:
        there, gone = (solution, starter) if line[0] == "+" else (starter, solution)
        assert line[1:].strip() in there, f"{line!r}: no such line in {'the solution' if line[0] == '+' else 'the lab'}"
        assert there.count(line[1:].strip()) > gone.count(line[1:].strip()), f"{line!r} is no difference"


@of_each_lesson
def test_a_lesson_links_the_documented_case(lab: Lab) -> None:
    told = section(lesson(lab), "Where it happened")
    assert lab.anchor.urls[0] in told
    if lab.anchor.general_pytorch:
        assert re.search(r"general|PyTorch", told), "a general PyTorch case is said to be one"


@of_each_lesson
def test_the_rules_that_must_fire_are_named_under_the_detector(lab: Lab) -> None:
    told = section(lesson(lab), "The detector")
    assert all(code in told for code in lab.rules)


@of_each_lesson
def test_nothing_before_the_diagnosis_names_a_rule(lab: Lab) -> None:
    before = lesson(lab).split("\n## Diagnose\n", 1)[0]
    assert not [code for code in lab.rules if code in before], "a rule's name tells the fault"


def _lines(folder: Path, lab: Lab) -> list[str]:
    return [line.strip() for name in lab.editable for line in (folder / name).read_text(encoding="utf-8").splitlines()]
