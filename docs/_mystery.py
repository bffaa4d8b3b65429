"""The page docs/reference/mystery.md: the fault operators of `lab mystery`, and what was measured of its generator."""

from __future__ import annotations

import json
from typing import Any

from labs.grading.catalog import CHAPTERS
from labs.mystery.aspects import ASPECTS
from labs.mystery.compose import DIMENSIONS
from labs.mystery.measured import RECORD
from labs.mystery.operators import OPERATORS

_INTRO = """# Mysteries

`lab mystery` composes a program from a seed and plants a fault into it, as [the guide](../guides/mystery.md)
describes. This page names every fault, so it is for authors and for readers who have solved what they came for.
"""


def page() -> str:
    """The text of the page."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    parts = (_INTRO, _measured(record), _operators(record), _dimensions(record), _aspects())
    return "\n".join(parts).rstrip() + "\n"


def _measured(record: dict[str, Any]) -> str:
    seen = sum(count > 0 for count in record["operators"].values())
    rows = (
        ("Seeds", record["seeds"]),
        ("Seeds without a fair draw", record["without a draw"]),
        ("Programs that pass as planted", record["passing as planted"]),
        ("Programs that are refused with the fault undone", record["refused without the fault"]),
        ("Programs that ruff would format or complain about", record["not in ruff's style"]),
        ("Operators planted at least once", f"{seen} of {len(OPERATORS)}"),
        ("CPU seconds of the generator for a seed, median", record["median seconds"]),
        ("CPU seconds of the generator for a seed, largest", record["largest seconds"]),
        ("Draws that the slowest seed took", record["most draws"]),
    )
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    return f"""## What was measured

Seeds 1 to {record["seeds"]}, with the levels 2, 3 and 1 in turn. For each seed the checks were run in one process on
the planted program and on the program with the fault undone, on inputs that the generator had not used.
`lab dev mystery --seeds 500 --write` measures more.

| | |
|---|---:|
{table}
"""


def _operators(record: dict[str, Any]) -> str:
    lines = ["## Fault operators", ""]
    lines.append(f"{len(OPERATORS)} operators. The last column says how often the seeds above planted it.")
    for chapter in CHAPTERS:
        lines += [
            "",
            f"### {chapter}",
            "",
            "| Operator | Level | From | What is wrong | Planted |",
            "|---|---:|---|---|---:|",
        ]
        for one in OPERATORS:
            if one.chapter == chapter:
                count = record["operators"].get(one.id, 0)
                lines.append(f"| `{one.id}` | {one.level} | {_source(one.source)} | {one.wrong} | {count} |")
    return "\n".join(lines) + "\n"


def _source(source: str) -> str:
    return f"lab {source[3:]}" if source.startswith("lab") else source


def _dimensions(record: dict[str, Any]) -> str:
    rows = []
    for name, options in DIMENSIONS.items():
        counts = ", ".join(f"{form} {record['forms'].get(name, {}).get(form, 0)}" for form in options)
        rows.append(f"| {name} | {counts} |")
    about = "Besides these, names, sizes and rates are drawn by the seed. The numbers count seeds."
    lines = ("## What differs between programs", "", about, "", "| Part | Forms |", "|---|---|", *rows)
    return "\n".join(lines) + "\n"


def _aspects() -> str:
    rows = [f"| `{one.id}` | {one.property} |" for one in ASPECTS]
    about = "Each row is one check of a grade. Both programs are measured by the same probe on the same random input."
    return "\n".join(("## What is compared", "", about, "", "| Check | Requirement |", "|---|---|", *rows))
