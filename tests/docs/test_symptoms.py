"""The symptom index lists every lab and every rule."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from debugkit.rule import FAMILIES, all_rules
from labs.grading.catalog import CHAPTERS, all_labs


@pytest.fixture(scope="module")
def signs(root: Path) -> list[dict[str, Any]]:
    return tomllib.loads((root / "docs" / "_symptoms.toml").read_text(encoding="utf-8"))["sign"]


def test_every_lab_is_under_a_symptom(signs: list[dict[str, Any]]) -> None:
    lost = [lab.id for lab in all_labs() if not any(lab.id in sign["labs"] for sign in signs)]
    assert not lost, f"no symptom in docs/_symptoms.toml lists lab {', '.join(lost)}"


def test_every_rule_is_under_a_symptom(signs: list[dict[str, Any]]) -> None:
    lost = [rule.code for rule in all_rules() if not any(rule.code in sign["rules"] for sign in signs)]
    assert not lost, f"no symptom in docs/_symptoms.toml lists {', '.join(lost)}"


def test_a_loud_lab_is_under_a_loud_symptom_and_a_silent_one_under_a_silent(signs: list[dict[str, Any]]) -> None:
    for lab in all_labs():
        loudness = {sign["loud"] for sign in signs if lab.id in sign["labs"]}
        assert (lab.loudness == "loud") in loudness, f"lab {lab.id} is {lab.loudness}, and none of its symptoms is"


def test_the_sites_chapters_are_the_catalogs_and_the_rules(root: Path) -> None:
    chapters = tomllib.loads((root / "docs" / "_chapters.toml").read_text(encoding="utf-8"))
    assert tuple(chapters) == CHAPTERS == FAMILIES
    assert [chapter["digit"] for chapter in chapters.values()] == list(range(10))
