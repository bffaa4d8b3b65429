"""From an exception to the sentence on stderr and the exit code."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path

from labs.cli import missing_package
from labs.grading.catalog import CatalogError, UnknownLabError
from labs.grading.errors import CheckError, SandboxError, SubmissionFailure, UsageError
from labs.grading.submission_text import clean
from labs.learner.hints import HintsError
from labs.learner.progress import ProgressError
from labs.learner.workspace import WorkspaceError
from labs.locale import LanguageError

USAGE = 2
GRADER_FAULT = 3
INTERRUPTED = 130


@dataclass(frozen=True)
class Failure:
    """What to print, and the exit code."""

    sentence: str
    exit_code: int

    def __post_init__(self) -> None:
        # The name of a folder may be part of it, and anyone can choose one.
        object.__setattr__(self, "sentence", clean(self.sentence))


class RefusedError(Exception):
    """A command does not apply in this situation; the message says what to do instead."""


def explain(error: BaseException) -> Failure | None:
    """The sentence and exit code for an error; None if it is a bug of the lab."""
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort":
        return Failure("interrupted. Nothing is left running.", INTERRUPTED)
    if isinstance(error, ModuleNotFoundError) and (sentence := missing_package(error)) is not None:
        return Failure(sentence, USAGE)
    if isinstance(error, (UsageError, UnknownLabError, WorkspaceError, ProgressError, RefusedError, LanguageError)):
        return Failure(str(error), USAGE)
    if isinstance(error, SubmissionFailure):
        return Failure(str(error), 1)
    if isinstance(error, (CatalogError, CheckError, HintsError, SandboxError)):
        return Failure(str(error), GRADER_FAULT)
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # typer's or click's, by version
        said = error.format_message().rstrip().rstrip(".")  # click ends some of its sentences and not others
        return Failure(f"{said}. `lab --help` lists the commands.", USAGE)
    if (sentence := _of_the_memory(error)) is not None:
        return Failure(sentence, USAGE)
    if isinstance(error, OSError) and error.errno is not None:
        return _of_the_disk(error)
    return None


_NOT_MAPPED = ("failed to map segment", "cannot allocate memory")
"""What the loader of shared libraries says."""


def _of_the_memory(error: BaseException) -> str | None:
    """Too little memory is no bug of the lab; mostly the first library that does not fit is torch."""
    said = str(error).lower()
    if isinstance(error, (ImportError, OSError)) and any(one in said for one in _NOT_MAPPED) and ".so" in said:
        return "torch could not be loaded: there is not enough memory. Free some, or raise the limit (`ulimit -v`)."
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return "there is not enough memory. Free some, or raise the limit (`ulimit -v`)."
    return None


def _of_the_disk(error: OSError) -> Failure | None:
    if error.errno == errno.ENOENT and _current_folder_is_gone():
        return Failure("The current folder was removed. Change to another folder.", USAGE)
    where = error.filename or "The file"
    sentences = {
        errno.ENOSPC: "the disk is full. Nothing was changed. Free some space and repeat the command.",
        errno.EDQUOT: "your disk quota is used up. Nothing was changed. Free some space and repeat the command.",
        errno.EROFS: "the file system is read-only. Choose another folder: `lab init DIR`, then `--workspace DIR`.",
        errno.EACCES: "permission denied. Choose another folder: `lab init DIR`, then `--workspace DIR`.",
        errno.EPERM: "permission denied. Choose another folder: `lab init DIR`, then `--workspace DIR`.",
        errno.ENOENT: "there is no such file or folder. Check the path.",
        errno.ENOTDIR: "part of this path is a file, not a folder. Check the path.",
        errno.EISDIR: "this is a folder, but a file is needed. Check the path.",
    }
    sentence = sentences.get(error.errno or 0)
    return Failure(f"{where}: {sentence}", USAGE) if sentence else None


def _current_folder_is_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False
