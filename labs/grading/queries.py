"""Run a submission without grading it, in the same sandbox: `lab diagnose` and `lab run`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

import msgspec

from labs.grading.catalog import Lab
from labs.grading.errors import SubmissionDiedError, SubmissionRaisedError
from labs.grading.extras import require_extras
from labs.grading.files import read_submission
from labs.grading.grader import Source, job_of
from labs.grading.sandbox.launch import ColdLauncher, Launcher
from labs.grading.sandbox.session import Session
from labs.grading.submission_text import clean, clean_data

_SEED = 0


class Stream(Protocol):
    """Where the output of `run_symptom` goes."""

    def write(self, text: str, /) -> object:
        """Take a piece of the output."""

    def flush(self) -> object:
        """Show what was written so far."""


@dataclass(frozen=True)
class SymptomRun:
    """How `lab run` ended. `ending` is None if the lab's symptom ran to its end without an error."""

    ending: str | None
    output: str

    def __post_init__(self) -> None:
        if self.ending is not None:
            object.__setattr__(self, "ending", clean(self.ending))


def diagnose(lab: Lab, submission: Source, *, server: Launcher | None = None) -> dict[str, Any]:
    """debugkit's findings on a submission, in the form of `Report.to_json()`, with `failure` and `loop_raised`.

    Every text in it is cleaned: the report is made beside the submission's code, which may have changed it. Raises
    SubmissionFileError, SubmissionRaisedError, SubmissionDiedError, SandboxError, MissingExtraError.
    """
    require_extras(lab)
    with Session(job_of(lab, read_submission(lab, submission), submission), server or ColdLauncher()) as session:
        session.load(_SEED)
        report = session.request("diagnose", "", seed=_SEED)
    try:
        msgspec.convert(report, _Report)
    except (msgspec.ValidationError, TypeError):
        raise SubmissionDiedError("The submission changed debugkit's report into something that is not one.") from None
    cleaned: dict[str, Any] = clean_data(report)
    return cleaned


def run_symptom(lab: Lab, submission: Source, stream: Stream, *, server: Launcher | None = None) -> SymptomRun:
    """Reproduce the lab's symptom. What it prints, a traceback included, goes to `stream` as it comes, cleaned.

    Raises SubmissionFileError, SandboxError, MissingExtraError.
    """
    require_extras(lab)

    def pass_on(text: str) -> None:
        stream.write(text)
        stream.flush()

    job = job_of(lab, read_submission(lab, submission), submission)
    ending: str | None = None
    with Session(job, server or ColdLauncher(), on_output=pass_on) as session:
        try:
            session.load(_SEED)
            session.request("symptom", "", seed=_SEED)
        except (SubmissionRaisedError, SubmissionDiedError) as error:
            ending = str(error)
    return SymptomRun(ending, session.output)


_Code = Annotated[str, msgspec.Meta(pattern=r"^[A-Z]{2,8}[0-9]{3}$")]
_Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9-]{1,60}$")]


class _Location(msgspec.Struct):
    module: str | None
    parameter: str | None
    file: str | None
    line: int | None
    step: int | None


class _Finding(msgspec.Struct):
    code: _Code
    name: _Name
    severity: Literal["error", "warning", "info"]
    message: str
    location: _Location
    evidence: dict[str, Any]
    fix: str
    url: str
    caused_by: _Code | None


class _NotExamined(msgspec.Struct):
    code: _Code
    why: str


class _Report(msgspec.Struct):
    """The form that a report must have to be shown. The content is not checked: a submission can forge it."""

    findings: list[_Finding]
    examined: list[_Code]
    not_examined: list[_NotExamined]
    failure: str | None = None
    loop_raised: str | None = None
