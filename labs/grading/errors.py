"""What can go wrong, as types: a mistake of the user, a failure of the submission, or a fault of the grader.

Every message is one sentence: what happened, what was expected, what to do now. The type decides the verdict:
`UsageError` stops the command, `SubmissionFailure` is `failed`, `SandboxError` and `CheckError` are `error`.
"""

from __future__ import annotations

from dataclasses import dataclass

from labs.grading.submission_text import shorten

_LONGEST_RAISED, _LONGEST_CODE = 1500, 120


class GradingError(Exception):
    """Base of everything that the grader raises on purpose. The message may quote the submission, as it is."""


class UsageError(GradingError):
    """A mistake on the command line or in the installation; nothing was graded."""


class MissingExtraError(UsageError):
    """The lab needs an optional dependency that is not installed."""


class SandboxError(GradingError):
    """The grader could not do its work: no process, no disk, no reply from its own supervisor."""


class CheckError(GradingError):
    """A lab's checks.py or probe.py is wrong, not the submission."""


class SubmissionFailure(GradingError):  # noqa: N818 (a failure is a result, not an error)
    """Something that the submission did. The verdict is `failed`, never `error`."""


class SubmissionFileError(SubmissionFailure):
    """A submitted file cannot be graded."""


class MissingFileError(SubmissionFileError):
    """An editable file is not in the workspace."""


class SymlinkError(SubmissionFileError):
    """An editable file is a link, so the graded file would be somewhere else."""


class TooBigError(SubmissionFileError):
    """An editable file is larger than any solution could be."""


class NotUtf8Error(SubmissionFileError):
    """An editable file is not UTF-8 text."""


class PythonSyntaxError(SubmissionFileError):
    """An editable file does not parse; the message holds the line and a caret."""


@dataclass(frozen=True)
class TraceLine:
    """One frame of a traceback inside the learner's own files."""

    file: str
    line: int
    function: str
    code: str


class SubmissionRaisedError(SubmissionFailure):
    """The submission's code raised; the child is still alive.

    `type_name` is the exception's class name, `text` its message, `trace` the frames in the learner's files,
    outermost first.
    """

    def __init__(self, what: str, type_name: str, text: str, trace: tuple[TraceLine, ...] = ()) -> None:
        self.type_name = type_name
        self.text = text
        self.trace = trace
        last = trace[-1] if trace else None
        place = f" ({last.file}, line {last.line}: {shorten(last.code, _LONGEST_CODE)})" if last is not None else ""
        super().__init__(f"{what} raised {type_name}: {shorten(text, _LONGEST_RAISED)}{place}")


class SubmissionDiedError(SubmissionFailure):
    """The child ended, or was stopped because of what it did. It cannot answer any more requests."""
