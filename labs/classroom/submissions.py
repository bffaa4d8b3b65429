"""Which labs a learner submitted, and the files of each."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from labs.classroom.entries import Entry, EntryError
from labs.grading.answers import ANSWERS
from labs.grading.catalog import Lab
from labs.learner.former_names import names_of

_MOST_NAMES = 3
"""Of the files that were submitted, in a sentence."""


@dataclass(frozen=True)
class Submitted:
    """One learner's files of one lab; or why there are none."""

    student: str
    lab: Lab
    files: dict[str, bytes]
    problem: str = ""
    absence: str = ""
    """Why the lab counts as missing."""

    @property
    def digest(self) -> str:
        """SHA-256 of the files: the same submission has the same one."""
        parts = [f"{name}\0{hashlib.sha256(data).hexdigest()}" for name, data in sorted(self.files.items())]
        told = "" if self.absence == nothing_submitted(self.lab.id) else self.absence
        return hashlib.sha256("\n".join([*parts, self.problem + told]).encode()).hexdigest()


def nothing_submitted(lab_id: str) -> str:
    """Why a lab counts as missing, if the learner submitted nothing or other labs."""
    return f"Nothing was submitted for lab {lab_id}."


def submissions_of(entry: Entry, labs: Sequence[Lab]) -> list[Submitted]:
    """One for each lab: the files of its folder in the entry, wherever it lies there.

    If only one lab is graded, its files are also found without its folder. A lab without files is missing.
    """
    alone = len(labs) == 1
    submitted = [_submitted(entry, lab, alone) for lab in labs]
    if entry.problem or any(one.files or one.problem for one in submitted):
        return submitted
    names = [*map(str, sorted(entry.files)), *entry.not_read]
    return [replace(one, absence=_none_usable(one.lab, names, alone)) for one in submitted] if names else submitted


def _none_usable(lab: Lab, names: Sequence[str], alone: bool) -> str:
    """Why the lab counts as missing, if none of the files that were submitted is a file of a lab."""
    told = ", ".join([*names[:_MOST_NAMES], *["…"] * (len(names) > _MOST_NAMES)])
    if not alone:
        return f"No folder {lab.name} with the lab's files was found; submitted: {told}."
    return f"No {', '.join(lab.editable)} was found; submitted: {told}."


def _submitted(entry: Entry, lab: Lab, alone: bool) -> Submitted:
    if entry.problem:
        return Submitted(entry.student, lab, {}, entry.problem)
    folders = _folders_of(entry, lab, alone)
    if len(folders) > 1:
        told = " and ".join(str(folder) or "." for folder in folders[:2])
        return Submitted(entry.student, lab, {}, f"There are several copies of lab {lab.id}: {told}. Keep one.")
    if not folders:
        return Submitted(entry.student, lab, {}, absence=nothing_submitted(lab.id))
    try:
        return Submitted(entry.student, lab, _files_in(entry, lab, folders[0]))
    except EntryError as error:
        return Submitted(entry.student, lab, {}, str(error))


def _folders_of(entry: Entry, lab: Lab, alone: bool) -> list[PurePosixPath]:
    """The folders that hold the lab's files, the nearest ones: those with its name, or else, for one lab, any."""
    holding = {root for path in entry.files for name in lab.editable if (root := _root(path, name)) is not None}
    named = {folder for folder in holding if folder.name.lower() in names_of(lab)}
    found = named or (holding if alone else set())
    nearest = min((len(folder.parts) for folder in found), default=0)
    return sorted(folder for folder in found if len(folder.parts) == nearest)


def _root(path: PurePosixPath, name: str) -> PurePosixPath | None:
    """The folder in which `path` is the editable file `name`; None if it is another file."""
    wanted = PurePosixPath(name).parts
    parts = path.parts[-len(wanted) :]
    if len(parts) < len(wanted) or parts[:-1] != wanted[:-1] or not _same(parts[-1], wanted[-1]):
        return None
    return PurePosixPath(*path.parts[: -len(wanted)])


def _same(name: str, wanted: str) -> bool:
    """Canvas appends a number to a file that was submitted again: policy-1.py."""
    stem, dot, suffix = wanted.rpartition(".")
    return re.fullmatch(rf"{re.escape(stem)}(-\d+)?{re.escape(dot + suffix)}", name) is not None


def _files_in(entry: Entry, lab: Lab, folder: PurePosixPath) -> dict[str, bytes]:
    found = {}
    for name in (*lab.editable, ANSWERS):
        place = folder / name
        there = [path for path in entry.files if path.parent == place.parent and _same(path.name, place.name)]
        if there:
            found[name] = entry.read(max(there, key=lambda path: (len(path.name), path.name)))
    return found
