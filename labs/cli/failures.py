"""From an exception to the sentence a person reads and the exit code a script reads."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from labs.cli import missing_package
from labs.grading.catalog import CatalogError, UnknownLabError
from labs.grading.errors import PersonError, SandboxError, SubmissionFailure
from labs.learner.hints import HintsError
from labs.learner.progress import ProgressError
from labs.learner.workspace import WorkspaceError

USAGE = 2
GRADER_FAULT = 3
INTERRUPTED = 130


@dataclass(frozen=True)
class Failure:
    """What to say, and how to exit."""

    sentence: str
    exit_code: int


class RefusedError(Exception):
    """A command was asked for what it does not do now; the message says what to do instead."""


def explain(error: BaseException) -> Failure | None:
    """The sentence and exit code for an error; None where the fault is the lab's own."""
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort":
        return Failure("interrupted; nothing was left running.", INTERRUPTED)
    if isinstance(error, ModuleNotFoundError) and (sentence := missing_package(error)) is not None:
        return Failure(sentence, USAGE)
    if isinstance(error, (PersonError, UnknownLabError, WorkspaceError, ProgressError, RefusedError)):
        return Failure(str(error), USAGE)
    if isinstance(error, SubmissionFailure):
        return Failure(str(error), 1)
    if isinstance(error, (CatalogError, HintsError, SandboxError)):
        return Failure(str(error), GRADER_FAULT)
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # typer's or click's, by version
        said = error.format_message().rstrip().rstrip(".")  # click ends some of its sentences and not others
        return Failure(f"{said}. `lab --help` lists the commands.", USAGE)
    if isinstance(error, OSError) and error.errno is not None:
        return _of_the_disk(error)
    return None


def _of_the_disk(error: OSError) -> Failure | None:
    where = error.filename or "The file"
    sentences = {
        errno.ENOSPC: "the disk is full. Free some space and repeat this; nothing was changed.",
        errno.EDQUOT: "your disk quota is used up. Free some space and repeat this; nothing was changed.",
        errno.EROFS: "the file system is read-only. Choose another folder: `lab init DIR`, then `--workspace DIR`.",
        errno.EACCES: "you may not write there. Choose another folder: `lab init DIR`, then `--workspace DIR`.",
        errno.EPERM: "you may not write there. Choose another folder: `lab init DIR`, then `--workspace DIR`.",
        errno.ENOENT: "there is no such file or folder. Check the path.",
        errno.ENOTDIR: "a part of this path is a file, not a folder. Check the path.",
        errno.EISDIR: "this is a folder, and a file is needed. Check the path.",
    }
    sentence = sentences.get(error.errno or 0)
    return Failure(f"{where}: {sentence}", USAGE) if sentence else None
