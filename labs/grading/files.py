"""Reads a submission's editable files, and explains in one sentence why one cannot be graded."""

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
from labs.grading.submission_text import clean

LARGEST_FILE_BYTES = 512 * 1024
"""A learner's file has at most 200 lines; only a generated one reaches half a MiB."""


def read_submission(lab: Lab, source: Path | str | Mapping[str, str | bytes]) -> dict[str, str]:
    """The text of the editable files by name, from a folder or from memory, checked to be gradable.

    Raises MissingFileError, SymlinkError, TooBigError, NotUtf8Error or PythonSyntaxError.
    """
    texts = {name: read_text(name, source) for name in lab.editable}
    for name, text in texts.items():
        if name.endswith(".py"):
            check_syntax(name, text)
    return texts


def read_text(name: str, source: Path | str | Mapping[str, str | bytes]) -> str:
    """The text of one file of a submission. Raises the same errors as `read_submission`, but for the syntax."""
    raw = _from_memory(name, source) if isinstance(source, Mapping) else _from_disk(Path(source) / name)
    return _text(name, raw)


def check_syntax(name: str, text: str) -> None:
    """Raise PythonSyntaxError, with the line and a caret under the place, if the text is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning is no fault, even if the user turned warnings into errors
            compile(text, name, "exec", dont_inherit=True)
    except SyntaxError as error:
        picture = _picture((error.text or "").rstrip("\n"), (error.offset or 1) - 1)
        raise PythonSyntaxError(f"SyntaxError in {name}, line {error.lineno or 1}: {error.msg}.{picture}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise PythonSyntaxError(f"{name} cannot be parsed: {error or type(error).__name__}.") from None


_SHOWN_BEFORE, _SHOWN = 30, 56  # narrow enough for the caret to stay below its column on 80 columns


def _picture(line: str, column: int) -> str:
    """The line with a caret under the column, or the part around it if the line is long."""
    indent = len(line) - len(line.lstrip())
    start = max(indent, column - _SHOWN_BEFORE)
    part = line[start : start + _SHOWN].rstrip()
    # What is shown of a control character before the caret is longer than the character.
    before = " " * len(clean(line[start:column]))
    return f"\n    {part}\n    {before}^" if part else ""


def _from_memory(name: str, files: Mapping[str, str | bytes]) -> bytes:
    if name not in files:
        raise MissingFileError(
            f"{name} is missing from the submission, and this lab grades it. Add it and grade again."
        )
    data = files[name]
    try:
        data = data.encode() if isinstance(data, str) else data
    except UnicodeEncodeError:
        raise NotUtf8Error(f"{name} is not UTF-8 text. Save it as UTF-8 and grade again.") from None
    return _small(name, data)


def _from_disk(path: Path) -> bytes:
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            raise SymlinkError(
                f"{path} is a link. Put the file itself there, so that the graded file is the one you submit."
            )
        if not stat.S_ISREG(mode):
            raise SubmissionFileError(
                f"{path} is not a file. Put {path.name} there; `lab reset` restores a fresh copy."
            )
        with path.open("rb") as file:
            return _small(path.name, file.read(LARGEST_FILE_BYTES + 1))
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFileError(
            f"{path} is missing, and this lab grades it. `lab reset` restores a fresh copy."
        ) from None
    except PermissionError:
        raise SubmissionFileError(
            f"{path} cannot be read: permission denied. Run `chmod u+r` on it and grade again."
        ) from None
    except OSError as error:
        raise SubmissionFileError(f"{path} cannot be read: {error.strerror or error}.") from None


def _small(name: str, data: bytes) -> bytes:
    if len(data) > LARGEST_FILE_BYTES:
        raise TooBigError(
            f"{name} is larger than {LARGEST_FILE_BYTES // 1024} KiB, but a fix is a few lines. Submit the edited file."
        )
    return data


def _text(name: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise NotUtf8Error(f"{name} is not UTF-8 text (line {line}). Save it as UTF-8 and grade again.") from None
