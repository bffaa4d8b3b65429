"""The checklists name only labs, rules and instruments that exist."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import debugkit
from debugkit.rule import all_rules
from labs.grading.catalog import all_labs


@pytest.fixture(scope="module")
def items(root: Path) -> list[dict[str, Any]]:
    read = tomllib.loads((root / "docs" / "_checklists.toml").read_text(encoding="utf-8"))
    return [item for checklist in read["checklist"] for item in checklist["items"]]


def test_every_line_of_a_checklist_has_a_lesson(items: list[dict[str, Any]]) -> None:
    written = {lab.id for lab in all_labs()}
    bare = [item["topic"] for item in items if not written & set(item["labs"])]
    assert not bare, f"no lesson teaches: {'; '.join(bare)}"


def test_rules_and_instruments_of_a_checklist_exist(items: list[dict[str, Any]]) -> None:
    codes = {rule.code for rule in all_rules()}
    assert {code for item in items for code in item.get("rules", ())} <= codes
    assert {tool for item in items for tool in item.get("tools", ())} <= set(debugkit.__all__)


def test_the_page_and_a_chapter_show_them(site: Path, items: list[dict[str, Any]]) -> None:
    whole = (site / "checklists" / "index.html").read_text(encoding="utf-8")
    assert whole.count("<h2") == 5
    assert "debugkit.instruments.trace_shapes.trace_shapes" in whole
    chapter = (site / "lessons" / "shapes" / "index.html").read_text(encoding="utf-8")
    assert "trace every module" in chapter
    assert "gradcheck" not in chapter
