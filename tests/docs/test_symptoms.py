"""The symptom index leads to every lab and every rule there is."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from debugkit.registry import FAMILIES, all_rules
from labs.grading.catalog import CHAPTERS, all_labs


@pytest.fixture(scope="module")
def signs(root: Path) -> list[dict[str, Any]]:
    return tomllib.loads((root / "docs" / "_symptoms.toml").read_text(encoding="utf-8"))["sign"]


def test_a_sign_leads_to_every_lab(signs: list[dict[str, Any]]) -> None:
    lost = [lab.id for lab in all_labs() if not any(lab.id in sign["labs"] for sign in signs)]
    assert not lost, f"no sign in docs/_symptoms.toml leads to lab {', '.join(lost)}"


def test_a_sign_leads_to_every_rule(signs: list[dict[str, Any]]) -> None:
    lost = [rule.code for rule in all_rules() if not any(rule.code in sign["rules"] for sign in signs)]
    assert not lost, f"no sign in docs/_symptoms.toml leads to {', '.join(lost)}"


def test_a_lab_stands_under_a_sign_that_is_as_loud_as_it_is(signs: list[dict[str, Any]]) -> None:
    for lab in all_labs():
        heard = {sign["loud"] for sign in signs if lab.id in sign["labs"]}
        assert (lab.loudness == "loud") in heard, f"lab {lab.id} is {lab.loudness}, and no sign it stands under is"


def test_the_sites_chapters_are_the_catalogs_and_the_rules(root: Path) -> None:
    chapters = tomllib.loads((root / "docs" / "_chapters.toml").read_text(encoding="utf-8"))
    assert tuple(chapters) == CHAPTERS == FAMILIES
    assert [chapter["digit"] for chapter in chapters.values()] == list(range(10))
