"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

LabNumber = Annotated[
    str, typer.Argument(metavar="NN", help="The lab, as 03, 3 or gripper_never_closes.", show_default=False)
]
LabNumbers = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NN]...", help="The labs, as 03, 3 or gripper_never_closes.", show_default=False),
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
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout, in English, and nothing else.")
]
