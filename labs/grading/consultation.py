"""The two verbs that run a submission without judging it, in a grade's sandbox: `lab diagnose` and `lab run`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TextIO

from labs.grading.catalog import Lab
from labs.grading.errors import SubmissionDiedError, SubmissionRaisedError
from labs.grading.extras import require_extras
from labs.grading.files import read_submission
from labs.grading.grader import Source, job_of
from labs.grading.sandbox.launch import ColdLauncher, Launcher
from labs.grading.sandbox.session import Session

_SEED = 0


@dataclass(frozen=True)
class SymptomRun:
    """How `lab run` ended: `ending` is None where the lab's symptom ran to its end without an error."""

    ending: str | None
    output: str


def diagnose(lab: Lab, submission: Source, *, server: Launcher | None = None) -> dict[str, Any]:
    """debugkit's findings on a submission, in the form of `Report.to_json()`, with `loop_raised` beside them.

    Raises SubmissionFileError, SubmissionRaisedError, SubmissionDiedError, SandboxError, MissingExtraError.
    """
    require_extras(lab)
    with Session(job_of(lab, read_submission(lab, submission), submission), server or ColdLauncher()) as session:
        session.load(_SEED)
        report = session.ask("diagnose", "", seed=_SEED)
    if not isinstance(report, dict) or not isinstance(report.get("findings"), list):
        raise SubmissionDiedError("The submission did not let debugkit finish its report.")
    return report


def run_symptom(lab: Lab, submission: Source, stream: TextIO, *, server: Launcher | None = None) -> SymptomRun:
    """Reproduce the lab's symptom; what it prints, a traceback included, goes to `stream` as it comes.

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
            session.ask("symptom", "", seed=_SEED)
        except (SubmissionRaisedError, SubmissionDiedError) as error:
            ending = str(error)
    return SymptomRun(ending, session.output)
