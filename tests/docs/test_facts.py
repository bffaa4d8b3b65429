"""What pages state without holding it: the repository's address, the numbers, and descriptions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from debugkit.rule import all_rules
from docs_modules import load
from labs.grading.catalog import all_labs

FACTS = load("_facts")
ROOT = Path(__file__).resolve().parents[2]
ADDRESS = re.compile(r"https://github\.com/vla-debug-lab/[\w-]+")


def test_the_repositorys_address_is_the_same_everywhere() -> None:
    address = FACTS.urls()["Repository"]
    for name in ["README.md", "SECURITY.md", "CITATION.cff", "pyproject.toml", ".github/ISSUE_TEMPLATE/config.yml"]:
        assert set(ADDRESS.findall((ROOT / name).read_text(encoding="utf-8"))) == {address}, name
    home = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["url"]
    assert FACTS.urls()["Homepage"] == home
    assert all(url.startswith((address, home)) for url in FACTS.urls().values())


def test_no_page_holds_the_address_or_a_number_itself() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert not ADDRESS.search(page.read_text(encoding="utf-8")), (
            f"{page} writes the address: use {{{{repository}}}}"
        )


def test_the_numbers_are_counted() -> None:
    facts = FACTS.facts()
    assert facts["labs"] == str(len(all_labs()))
    assert facts["rules"] == str(len(all_rules()))
    accuracy = (ROOT / "docs" / "debugkit" / "accuracy.md").read_text(encoding="utf-8")
    assert f"**{facts['alarms']} of {facts['programs']}** correct" in accuracy
    assert f"**{facts['found']} of {facts['faults']}** planted" in accuracy


def test_a_fact_is_put_into_text_and_an_unknown_one_is_refused() -> None:
    assert (
        FACTS.with_facts("{{rules}} rules, ${SHELL}, {not one}") == f"{len(all_rules())} rules, ${{SHELL}}, {{not one}}"
    )
    with pytest.raises(FACTS.UnknownFactError, match="labs"):
        FACTS.with_facts("{{laps}}")


@pytest.mark.parametrize(
    ("markdown", "paragraph"),
    [
        ("# Title\n\n```text\nfenced\n\nstill fenced\n```\n\nThe [first](a.md) `one`.\n\nSecond.", "The first one."),
        ("# T\n\n| a | b |\n|---|---|\n\n- item\n\n!!! note\n    inside\n\n**Bold** prose\nhere.", "Bold prose here."),
        ("# Title", ""),
        (f"A sentence that can be a description. {'word ' * 60}", "A sentence that can be a description."),
    ],
)
def test_a_description_is_the_first_paragraph_of_prose(markdown: str, paragraph: str) -> None:
    assert FACTS.first_paragraph(markdown) == paragraph


def test_a_description_without_an_early_full_stop_is_cut_at_a_word() -> None:
    cut = FACTS.shortened("word " * 100)
    assert len(cut) <= FACTS.LONGEST
    assert cut.endswith("word…")
