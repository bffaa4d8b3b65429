"""The lab that an argument names: one of the catalog, a capstone, or a mystery of the workspace."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

from labs.grading.catalog import Lab, UnknownLabError, all_labs, find
from labs.learner.pack import are_own
from labs.learner.progress import Progress
from labs.learner.workspace import Workspace, resolve

if TYPE_CHECKING:
    from labs.capstones.capstone import Capstone


def which_lab(number: str, workspace: Path | None) -> Lab:
    """The lab, for a command with the option --workspace. Raises UnknownLabError, WorkspaceError."""
    return lab_of(number, resolve(workspace)) if number.startswith("mystery") else shipped_lab(number)


def lab_of(number: str, here: Workspace) -> Lab:
    """The lab. Raises UnknownLabError, WorkspaceError."""
    if number.startswith("mystery") and has_mysteries():
        from labs.mystery.mystery_lab import find_mystery, is_mystery

        if is_mystery(number):
            return find_mystery(number, here)
    return shipped_lab(number)


def shipped_lab(number: str) -> Lab:
    """The lab or capstone of that number. Raises UnknownLabError."""
    if not has_capstones():
        return find(number)
    from labs.capstones.capstone import find_capstone

    capstone = find_capstone(number)
    if capstone is not None:
        return capstone
    try:
        return find(number)
    except UnknownLabError as error:
        _suggest_a_capstone(number)
        if "Did you mean" in str(error):
            raise
    there = _ranges([lab.id for lab in all_labs()])
    more = ", ".join(one.id.upper() for one in shipped_capstones())
    raise UnknownLabError(
        f"There is no lab {number}. Labs: {there}. Capstones: {more}. `lab list` shows what each is about."
    )


def _suggest_a_capstone(number: str) -> None:
    """Raises UnknownLabError if a capstone has the most similar name of all."""
    from difflib import get_close_matches  # imported only for a mistyped name

    capstones = {one.slug: one.id.upper() for one in shipped_capstones()}
    near = get_close_matches(number.lower(), [*(lab.slug for lab in all_labs()), *capstones], n=1)
    if near and near[0] in capstones:
        raise UnknownLabError(f"There is no lab {number}. Did you mean `{capstones[near[0]]}`, {near[0]}?") from None


def _ranges(numbers: Sequence[str]) -> str:
    """Ascending numbers, with neighbours together: `01–07, 11`."""
    runs: list[list[str]] = []
    for number in numbers:
        if runs and int(number) == int(runs[-1][-1]) + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def shipped_capstones() -> Sequence[Lab]:
    """Every capstone; none in a course pack, and none beside the labs of a pack."""
    if not has_capstones():
        return ()
    from labs.capstones.capstone import all_capstones

    return all_capstones()


def is_capstone(lab: Lab) -> TypeGuard[Capstone]:
    """Whether a lab is a capstone. This is decided by its name, because a course pack does not have the class."""
    return lab.name.startswith("capstone_")


def begun_mysteries(progress: Progress, here: Workspace) -> Sequence[Lab]:
    """The mysteries that a learner has started, newest first."""
    if not has_mysteries():
        return ()
    from labs.mystery.mystery_lab import mysteries_in

    return mysteries_in(progress, here)


def has_mysteries() -> bool:
    """Whether this installation has them; a course pack does not."""
    return find_spec("labs.mystery") is not None


def has_capstones() -> bool:
    """Whether the labs of this command are those of vla-debug-lab itself, which has them; a course pack does not."""
    return are_own() and find_spec("labs.capstones") is not None
