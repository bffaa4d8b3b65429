"""`lab list` without typer's parsing.

Typer (0.29) imports pydantic and builds adapters for whatever it parses, which costs as much as all of `lab list`, the
command a learner runs most. So its two options are parsed by argparse, and typer explains whatever else was typed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path


def listed_lightly(arguments: Sequence[str]) -> bool:
    """Run `lab list` if that is what the arguments say and no more; else do nothing and return False."""
    if not arguments or arguments[0] != "list":
        return False
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--workspace", "-w", type=Path)
    try:
        known, unknown = parser.parse_known_args(list(arguments[1:]))
    except argparse.ArgumentError:
        return False
    if unknown:
        return False
    from labs.cli.overview_commands import list_labs

    list_labs(known.workspace, known.as_json)
    return True
