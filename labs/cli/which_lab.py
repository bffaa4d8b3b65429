"""The lab that an argument names: one of the catalog, or a mystery of the workspace."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from labs.grading.catalog import Lab, find
from labs.learner.progress import Progress
from labs.learner.workspace import Workspace, resolve


def which_lab(number: str, workspace: Path | None) -> Lab:
    """The lab, for a command with the option --workspace. Raises UnknownLabError, WorkspaceError."""
    return lab_of(number, resolve(workspace)) if number.startswith("mystery") else find(number)


def lab_of(number: str, here: Workspace) -> Lab:
    """The lab. Raises UnknownLabError, WorkspaceError."""
    if number.startswith("mystery") and has_mysteries():
        from labs.mystery.mystery_lab import find_mystery, is_mystery

        if is_mystery(number):
            return find_mystery(number, here)
    return find(number)


def begun_mysteries(progress: Progress, here: Workspace) -> Sequence[Lab]:
    """The mysteries that a learner has begun, the newest first."""
    if not has_mysteries():
        return ()
    from labs.mystery.mystery_lab import mysteries_in

    return mysteries_in(progress, here)


def has_mysteries() -> bool:
    """Whether this installation has them; a course pack has not."""
    return find_spec("labs.mystery") is not None
