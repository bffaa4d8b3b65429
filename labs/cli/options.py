"""Arguments and options that several commands share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer


def _of_file(given: str) -> str:
    """The number of the lab whose folder holds the given file, if it is a path; otherwise what was given."""
    if "/" not in given:
        return given
    parts = reversed(Path(given).absolute().parts)
    folders = (re.fullmatch(r"lab(\d\d)_\w+|capstone_(\w\d)_\w+|(mystery-\d[\w-]*)", part) for part in parts)
    return next((next(filter(None, found.groups())) for found in folders if found), given)


def _of_files(given: list[str] | None) -> list[str] | None:
    return None if given is None else [_of_file(one) for one in given]


LabNumber = Annotated[
    str,
    typer.Argument(
        metavar="NN",
        help="The lab, as 03, 3, gripper_never_closes, or the path of its file.",
        show_default=False,
        callback=_of_file,
    ),
]
LabNumbers = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NN]...",
        help="The labs, as 03, 3, gripper_never_closes, or the path of a file.",
        show_default=False,
        callback=_of_files,
    ),
]
WorkspaceOption = Annotated[
    Path | None,
    typer.Option(
        "--workspace",
        "-w",
        metavar="DIR",
        help="Your workspace. Default: the nearest parent folder with .lab/, then ./workspace.",
        show_default=False,
    ),
]
PathOption = Annotated[
    str | None,
    typer.Option("--path", metavar="NAME", help="Only the labs of a path, in its order.", show_default=False),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout, in English, and nothing else.")
]
