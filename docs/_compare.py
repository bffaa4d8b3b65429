"""The table of what debugkit and other tools report, from the record that tests/benchmarks/neighbours.py writes."""

from __future__ import annotations

import json

import _tables
from _language import say

Reports = dict[str, tuple[list[str], list[str]]]


def record() -> dict[str, Reports]:
    """What each tool reported on the wrong and on the right program of each fault."""
    tools = json.loads(_tables.read("_compare.json"))
    return {name: tool["faults"] for name, tool in tools.items()}


def versions() -> dict[str, str]:
    """The version of each tool that was measured; debugkit's is this one."""
    return {name: tool["version"] for name, tool in json.loads(_tables.read("_compare.json")).items()}


def found(wrong: list[str], right: list[str]) -> bool:
    """Whether a tool reports something on the wrong program alone."""
    return bool(set(wrong) - set(right))


def table() -> str:
    """One row a fault, one column a tool; the last rows count."""
    tools = record()
    faults = next(iter(tools.values()))
    rows = [[say(fault), *(say("yes") if found(*tool[fault]) else "–" for tool in tools.values())] for fault in faults]
    sums = [f"**{sum(found(*both) for both in tool.values())}**" for tool in tools.values()]
    noise = [str(sum(bool(right) for _, right in tool.values())) for tool in tools.values()]
    rows += [
        [f"**{say('found, of {faults}', faults=len(faults))}**", *sums],
        [say("right programs with a warning or error, of {faults}", faults=len(faults)), *noise],
    ]
    head = [f"| {say('fault')} | " + " | ".join(tools) + " |", "|---" * (len(tools) + 1) + "|"]
    return "\n".join([*head, *("| " + " | ".join(row) + " |" for row in rows)])
