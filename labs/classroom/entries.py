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
_SKIPPED = {".git", ".venv", "__pycache__", "__MACOSX", "node_modules", "site-packages", "started", "backups"}


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
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.is_symlink():
            continue
        if path.is_dir():
            entry = found.setdefault(_student(path.name), Entry(_student(path.name)))
            _add_folder(entry, path)
        elif canvas := _CANVAS.fullmatch(path.name):
            student = f"{canvas['name']} ({canvas['id']})"
            _add_file(found.setdefault(student, Entry(student)), path, PurePosixPath(canvas["file"]))
        elif path.suffix.lower() == ".zip":
            entry = found.setdefault(_student(path.stem), Entry(_student(path.stem)))
            _add_file(entry, path, PurePosixPath(path.name))
    return [found[name] for name in sorted(found)]


def entry_of(folder: Path) -> Entry:
    """One learner's folder as an entry."""
    entry = Entry(folder.name)
    _add_folder(entry, folder)
    return entry


def _student(name: str) -> str:
    moodle = _MOODLE.fullmatch(name)
    return f"{moodle['name']} ({moodle['id']})" if moodle else name


def _add_folder(entry: Entry, folder: Path) -> None:
    for path in _walk(folder):
        _add_file(entry, path, PurePosixPath(path.relative_to(folder).as_posix()))
        if len(entry.files) > MOST_FILES:
            entry.problem = f"The folder has more than {MOST_FILES:,} files."
            return


def _walk(folder: Path) -> Iterator[Path]:
    """Regular files, sorted, without links and without what no learner edits."""
    for path in sorted(folder.iterdir()):
        if path.is_symlink():
            continue
        if path.is_dir():
            if path.name not in _SKIPPED:
                yield from _walk(path)
        elif path.is_file():
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
        if member.is_dir() or _SKIPPED & set(inside.parts) or ".." in inside.parts:
            continue
        name = prefix / PurePosixPath(*[part for part in inside.parts if part != "/"])
        entry.files[name], entry.archives[name] = member, path
