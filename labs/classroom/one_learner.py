"""Grades the files of one learner, as an autograder gets them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from labs.classroom.entries import entry_of
from labs.classroom.submissions import submissions_of
from labs.grading import ForkServer, grade
from labs.grading.catalog import Lab
from labs.grading.errors import UsageError
from labs.grading.grades import Grade


def grade_folder(folder: Path, labs: Sequence[Lab], seed: int | None = None) -> Iterator[tuple[Lab, Grade]]:
    """Grade each lab that is in the folder, in its own folder or, for one lab, anywhere. Raises UsageError.

    A lab that is not there fails with a sentence: an autograder must write a result for it as well.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder. Give the folder with the learner's files.")
    with ForkServer() as server:
        for submitted in submissions_of(entry_of(folder), labs):
            lab = submitted.lab
            if submitted.files:
                yield lab, grade(lab, submitted.files, seed=seed, server=server)
            else:
                missing = f"{submitted.absence} Submit {' and '.join(lab.editable)}."
                yield lab, Grade(lab.id, lab.slug, "failed", submitted.problem or missing, 0.0, seed or 0)
