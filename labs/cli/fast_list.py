"""`lab list` without typer's parsing.

Typer (0.29) imports pydantic and builds adapters for what it parses, which takes as long as all of `lab list`, the
command that learners run most. So argparse parses its three options, and typer handles any other command line.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path


def run_fast_list(arguments: Sequence[str]) -> bool:
    """Run `lab list` if the arguments are exactly that; otherwise do nothing and return False."""
    if not arguments or arguments[0] != "list":
        return False
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--workspace", "-w", type=Path)
    parser.add_argument("--path")
    try:
        known, unknown = parser.parse_known_args(list(arguments[1:]))
    except argparse.ArgumentError:
        return False
    if unknown:
        return False
    from labs.cli.overview_commands import list_labs

    list_labs(known.workspace, known.as_json, known.path)
    return True
