"""The output of `lab run` with which a lesson begins, compared with what the starter prints now."""

from __future__ import annotations

import io
import re

from labs.authoring import printed
from labs.authoring.variants import base_files
from labs.grading.catalog import Lab
from labs.grading.queries import run_symptom
from labs.grading.sandbox.launch import Launcher
from labs.learner.lesson import lesson_file

TOLERANCE = printed.Tolerance(relative=0.1, points=10, any_time=True)
"""In a training run, the rounding of one step changes all later ones."""


def difference_from_lesson(lab: Lab, launcher: Launcher) -> str | None:
    """The first line that the lesson shows and a run does not print; None if there is none, or no run is shown.

    Raises SubmissionFileError, SandboxError, MissingExtraError, OSError.
    """
    shown = shown_run(lesson_file(lab).read_text(encoding="utf-8"), lab.id)
    if shown is None:
        return None
    run = run_symptom(lab, base_files(lab, "starter"), io.StringIO(), server=launcher)
    return printed.difference(shown, run.output, TOLERANCE)


def shown_run(lesson: str, number: str) -> str | None:
    """The text of the block with the title `lab run NN`; None if the lesson has none."""
    found = re.search(rf'^```text title="lab run {number}"\n(.*?)^```$', lesson, re.DOTALL | re.MULTILINE)
    return None if found is None else found[1]
