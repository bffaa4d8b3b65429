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
    return printed.difference(without_smallest(shown), without_smallest(run.output), TOLERANCE)


def shown_run(lesson: str, number: str) -> str | None:
    """The text of the block with the title `lab run NN`; None if the lesson has none."""
    found = re.search(rf'^```text title="lab run {number}"\n(.*?)^```$', lesson, re.DOTALL | re.MULTILINE)
    return None if found is None else found[1]


def without_smallest(text: str) -> str:
    """The text with the numbers in the `abs min` columns of logged frames as `?`, but for zeros.

    The smallest absolute value of a large tensor is as large as the rounding of one element: each processor prints
    another one.
    """
    lines, columns = [], list[int]()
    for line in text.splitlines():
        columns = [one.start() for one in re.finditer(r"\babs min  abs max\b", line)] or columns
        for at in columns:
            if re.match(r"\d\.\d\de[+-]\d\d ", line[at:]) and line[at] != "0":
                line = f"{line[:at]}?{' ' * 7}{line[at + 8 :]}"
        lines.append(line)
    return "\n".join(lines)
