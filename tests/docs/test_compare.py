"""The comparison with other tools says what was measured, and debugkit's column still holds."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from docs_modules import load

ROOT = Path(__file__).resolve().parents[2]
COMPARE = load("_compare")


def neighbours() -> ModuleType:
    spec = importlib.util.spec_from_file_location("neighbours", ROOT / "tests" / "benchmarks" / "neighbours.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


MEASURED = neighbours()


def test_the_record_has_every_tool_and_fault() -> None:
    tools = COMPARE.record()
    assert list(tools) == list(MEASURED.TOOLS)
    assert all(list(faults) == list(MEASURED.FAULTS) for faults in tools.values())


def test_the_table_counts_what_it_shows() -> None:
    head, _, *rows = COMPARE.table().splitlines()
    tools = head.strip("| ").split(" | ")[1:]
    *faults, found, _ = [row.strip("| ").split(" | ") for row in rows]
    for column, _ in enumerate(tools, start=1):
        assert found[column] == f"**{sum(row[column] == 'yes' for row in faults)}**"


@pytest.mark.parametrize("fault", MEASURED.FAULTS, ids=lambda fault: fault.replace(" ", "-"))
def test_debugkits_column_still_holds(fault: str) -> None:
    recorded = COMPARE.record()["debugkit"][fault]
    again = [MEASURED.reported(MEASURED.with_debugkit, MEASURED.FAULTS[fault], wrong) for wrong in (True, False)]
    assert again == recorded


def test_the_versions_on_the_page_are_those_measured() -> None:
    page = (ROOT / "docs" / "debugkit" / "compare.md").read_text(encoding="utf-8")
    installed = [f"{name}=={version}" for name, version in COMPARE.versions().items() if f"{name}==" in page]
    assert len(installed) == 4
    assert all(pinned in page for pinned in installed)
