"""What a course platform exports for each learner: a folder, a zip file, or loose files with the learner's name.

    Canvas            doejane_12345_67890_policy.py, doejane_LATE_12345_67890_lab03.zip
    Moodle            Jane Doe_12345_assignsubmission_file_/policy.py
    GitHub Classroom  debugging-lab-jane/workspace/lab03_gripper_never_closes/policy.py

Files are read in memory: nothing of an archive is extracted, links are not followed, and what is read has limits.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from labs.grading.files import LARGEST_FILE_BYTES

MOST_FILES = 20_000
"""In one entry. A clone with its Git history and an environment has fewer."""
_CANVAS = re.compile(r"(?P<name>.+?)(?P<late>_LATE)?_(?P<id>\d+)_\d+_(?P<file>.+)")
_MOODLE = re.compile(r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_\w+")
_SKIPPED = {".git", ".venv", "__pycache__", "__MACOSX", "node_modules", "site-packages"}
_OF_A_WORKSPACE = {"started", "backups"}
"""Also skipped inside of an entry; at the top of an export they are names of learners."""


class EntryError(Exception):
    """The files of one learner cannot be read; the message is a sentence for the instructor."""


@dataclass
class Entry:
    """One learner's files: each path, relative to the entry, with the place that it is read from."""

    student: str
    """The name that the platform gives, with the platform's number where it has one."""
    files: dict[PurePosixPath, Path | zipfile.ZipInfo] = field(default_factory=dict)
    archives: dict[PurePosixPath, Path] = field(default_factory=dict)
    """For paths inside a zip file: the file."""
    not_read: list[str] = field(default_factory=list)
    """Links, and paths that lead out of their zip file."""
    problem: str = ""

    def read(self, path: PurePosixPath) -> bytes:
        """The content of a file, one byte longer at most than a submission's file may be. Raises EntryError."""
        place = self.files[path]
        try:
            if isinstance(place, Path):
                with place.open("rb") as file:
                    return file.read(LARGEST_FILE_BYTES + 1)
            with zipfile.ZipFile(self.archives[path]) as archive, archive.open(place) as member:
                return member.read(LARGEST_FILE_BYTES + 1)
        except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError, ValueError) as error:
            raise EntryError(f"{path} cannot be read: {error}.") from None


def entries_of(folder: Path) -> list[Entry]:
    """One entry for each learner, by name. Raises NotADirectoryError."""
    found: dict[str, Entry] = {}
    for path in _top(folder):
        student = _student_of(path)
        if student is None:
            continue
        entry = found.setdefault(student, Entry(student))
        if path.is_dir():
            _add_folder(entry, path)
        else:
            canvas = _CANVAS.fullmatch(path.name)
            _add_file(entry, path, PurePosixPath(canvas["file"] if canvas else path.name))
    return [found[name] for name in sorted(found)]


def not_read_in(folder: Path) -> list[str]:
    """The names in an export that belong to no learner. Raises NotADirectoryError."""
    return [path.name for path in _top(folder) if _student_of(path) is None]


def entry_of(folder: Path) -> Entry:
    """One learner's folder as an entry."""
    entry = Entry(folder.name)
    _add_folder(entry, folder)
    return entry


def _top(folder: Path) -> list[Path]:
    """What an export holds, without what an operating system adds."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith(".") and path.name not in _SKIPPED)


def _student_of(path: Path) -> str | None:
    """Whose folder or file it is; None for a link, and for a file that names no learner."""
    if path.is_symlink():
        return None
    if path.is_dir():
        return _student(path.name)
    if canvas := _CANVAS.fullmatch(path.name):
        return f"{canvas['name']} ({canvas['id']})"
    return _student(path.stem) if path.suffix.lower() == ".zip" else None


def _student(name: str) -> str:
    moodle = _MOODLE.fullmatch(name)
    return f"{moodle['name']} ({moodle['id']})" if moodle else name


def _add_folder(entry: Entry, folder: Path) -> None:
    for path in _walk(folder):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            entry.not_read.append(f"{name} (a link)")
            continue
        _add_file(entry, path, PurePosixPath(name))
        if len(entry.files) > MOST_FILES:
            entry.problem = f"The folder has more than {MOST_FILES:,} files."
            return


def _walk(folder: Path) -> Iterator[Path]:
    """Regular files and links, sorted, without what no learner edits."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            if path.name not in _SKIPPED | _OF_A_WORKSPACE:
                yield from _walk(path)
        elif path.is_symlink() or path.is_file():
            yield path


def _add_file(entry: Entry, path: Path, name: PurePosixPath) -> None:
    if name.suffix.lower() == ".zip":
        _add_archive(entry, path, name.with_suffix(""))
    else:
        entry.files[name] = path


def _add_archive(entry: Entry, path: Path, prefix: PurePosixPath) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (OSError, zipfile.BadZipFile, ValueError) as error:
        entry.problem = f"{path.name} is not a zip file that can be read: {error}."
        return
    if len(members) > MOST_FILES:
        entry.problem = f"{path.name} has more than {MOST_FILES:,} files."
        return
    for member in members:
        inside = PurePosixPath(member.filename.replace("\\", "/"))
        if member.is_dir() or (_SKIPPED | _OF_A_WORKSPACE) & set(inside.parts):
            continue
        if ".." in inside.parts:
            entry.not_read.append(str(inside))
            continue
        name = prefix / PurePosixPath(*[part for part in inside.parts if part != "/"])
        entry.files[name], entry.archives[name] = member, path
