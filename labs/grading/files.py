"""Reads a submission's editable files, and refuses what could not be graded, with a sentence for the person."""

from __future__ import annotations

import stat
import warnings
from collections.abc import Mapping
from pathlib import Path

from labs.grading.catalog import Lab
from labs.grading.errors import (
    MissingFileError,
    NotUtf8Error,
    PythonSyntaxError,
    SubmissionFileError,
    SymlinkError,
    TooBigError,
)

LARGEST_FILE_BYTES = 512 * 1024
"""A learner's file is at most 200 lines; half a MiB is only reached by something generated."""


def read_submission(lab: Lab, source: Path | str | Mapping[str, str | bytes]) -> dict[str, str]:
    """The editable files' text by name, from a folder or from memory, checked to be gradable.

    Raises MissingFileError, SymlinkError, TooBigError, NotUtf8Error or PythonSyntaxError.
    """
    if isinstance(source, Mapping):
        raw = {name: _from_memory(name, source) for name in lab.editable}
    else:
        raw = {name: _from_disk(Path(source) / name) for name in lab.editable}
    texts = {name: _text(name, data) for name, data in raw.items()}
    for name, text in texts.items():
        if name.endswith(".py"):
            check_syntax(name, text)
    return texts


def check_syntax(name: str, text: str) -> None:
    """Raise PythonSyntaxError, with the line and a caret under the place, if the text is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning is no fault, even where the person made warnings errors
            compile(text, name, "exec", dont_inherit=True)
    except SyntaxError as error:
        picture = _picture((error.text or "").rstrip("\n"), (error.offset or 1) - 1)
        raise PythonSyntaxError(f"{name}, line {error.lineno or 1} does not parse: {error.msg}.{picture}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise PythonSyntaxError(f"{name} does not parse: {error or type(error).__name__}.") from None


_SHOWN_BEFORE, _SHOWN = 60, 100


def _picture(line: str, column: int) -> str:
    """The line with a caret under the column; of a long line, the part around it."""
    indent = len(line) - len(line.lstrip())
    start = max(indent, column - _SHOWN_BEFORE)
    part = line[start : start + _SHOWN].rstrip()
    return f"\n    {part}\n    {' ' * max(0, column - start)}^" if part else ""


def _from_memory(name: str, files: Mapping[str, str | bytes]) -> bytes:
    if name not in files:
        raise MissingFileError(f"{name} is missing from the submission: this lab grades it. Add it and grade again.")
    data = files[name]
    try:
        data = data.encode() if isinstance(data, str) else data
    except UnicodeEncodeError:
        raise NotUtf8Error(f"{name} is not UTF-8 text: save it as UTF-8 and grade again.") from None
    return _small(name, data)


def _from_disk(path: Path) -> bytes:
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            raise SymlinkError(
                f"{path} is a link: put the file itself there, so that what is graded is what you hand in."
            )
        if not stat.S_ISREG(mode):
            raise SubmissionFileError(f"{path} is not a file: put {path.name} there, or `lab reset` for a fresh one.")
        with path.open("rb") as file:
            return _small(path.name, file.read(LARGEST_FILE_BYTES + 1))
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFileError(f"{path} is missing: this lab grades it. `lab reset` brings a fresh one.") from None
    except PermissionError:
        raise SubmissionFileError(
            f"{path} cannot be read: you lack the permission. `chmod u+r` it and grade again."
        ) from None
    except OSError as error:
        raise SubmissionFileError(f"{path} cannot be read: {error.strerror or error}.") from None


def _small(name: str, data: bytes) -> bytes:
    if len(data) > LARGEST_FILE_BYTES:
        raise TooBigError(
            f"{name} is larger than {LARGEST_FILE_BYTES // 1024} KiB: a fix is a few lines. Grade the edited file."
        )
    return data


def _text(name: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise NotUtf8Error(f"{name} is not UTF-8 text (line {line}): save it as UTF-8 and grade again.") from None
