"""What can go wrong, as types: a person's mistake, the submission's doing, or the grader's own fault.

Every message is one sentence for a person: what happened, what was expected, what to do now. The three families
decide the verdict, so nothing else in the grader has to guess: `PersonError` is said and stops the command,
`SubmissionFailure` is `failed`, `SandboxError` is `error`.
"""

from __future__ import annotations

from dataclasses import dataclass


class GradingError(Exception):
    """Base of everything the grader raises on purpose."""


class PersonError(GradingError):
    """A mistake at the command line or in the set-up; nothing was graded."""


class MissingExtraError(PersonError):
    """The lab needs an optional dependency that is not installed."""


class SandboxError(GradingError):
    """The grader could not do its own work: no process, no disk, no answer from its own supervisor."""


class CheckError(GradingError):
    """A lab's checks.py or probe.py is at fault, not the submission."""


class SubmissionFailure(GradingError):  # noqa: N818 (a failure is a result, not an error)
    """Something the submission did; always a `failed`, never an `error`."""


class SubmissionFileError(SubmissionFailure):
    """A submitted file cannot be read as what it should be."""


class MissingFileError(SubmissionFileError):
    """An editable file is not in the workspace."""


class SymlinkError(SubmissionFileError):
    """An editable file is a link, so what would be graded is somewhere else."""


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
    """The submission's code raised; the child goes on living.

    `type_name` is the exception's class name, `text` its message, `trace` the frames in the learner's files,
    outermost first.
    """

    def __init__(self, what: str, type_name: str, text: str, trace: tuple[TraceLine, ...] = ()) -> None:
        self.type_name = type_name
        self.text = text
        self.trace = trace
        place = f" ({trace[-1].file}, line {trace[-1].line}: {trace[-1].code})" if trace else ""
        super().__init__(f"{what} raised {type_name}: {text}{place}")


class SubmissionDiedError(SubmissionFailure):
    """The child is gone, or was ended because of what it did; nothing more can be asked of it."""
