"""One run over a class's submissions: what is new is graded, what is known is kept, and the pages are written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from labs.authoring.content_hash import decided_by
from labs.classroom.check import Difference, differences
from labs.classroom.entries import entries_of, not_read_in
from labs.classroom.grade_class import grade_all, work_for
from labs.classroom.key import read_key
from labs.classroom.part import WHOLE, Part
from labs.classroom.results import CSV, HTML, JSON, RESULTS, Result, ResultsFile, document, read_results
from labs.classroom.similarity import Pair, near_identical
from labs.classroom.submissions import Submitted, submissions_of
from labs.classroom.tables import as_csv, as_html
from labs.grading.catalog import Lab
from labs.grading.errors import UsageError
from labs.learner.atomic_file import write_atomically

KEY = "class.key"
PAGES = (JSON, CSV, HTML)


class ClassSession:
    """The submissions in `folder`, graded for `labs`, with all results in `out`. Raises UsageError.

    With a `part`, only that part of the submissions. Results in the folders `graded_in`, of runs elsewhere with the
    same key, are taken over and not graded again.
    """

    def __init__(
        self,
        folder: Path,
        labs: Sequence[Lab],
        out: Path,
        key: Path | None = None,
        *,
        part: Part = WHOLE,
        graded_in: Sequence[Path] = (),
    ) -> None:
        if not folder.is_dir():
            raise UsageError(f"{folder} is not a folder. Give the folder that the course platform exported, unzipped.")
        self.labs, self.out = labs, out
        self.not_read = not_read_in(folder)
        entries = [entry for entry in entries_of(folder) if not _is_inside(out, folder / entry.student)]
        if not entries:
            if self.not_read:
                names = ", ".join(self.not_read)
                raise UsageError(f"Not read: {names}. {folder} needs a folder or a zip file for each learner.")
            raise UsageError(f"{folder} has no submissions: it needs a folder or a zip file for each learner.")
        for elsewhere in graded_in:
            _expect_file(elsewhere / RESULTS)
        out.mkdir(parents=True, exist_ok=True)
        self._key = read_key(key or out / KEY)
        self.submitted = part.of([one for entry in entries for one in submissions_of(entry, labs)])
        self._content = {lab.id: decided_by(lab) for lab in labs}
        self.known = self._known(out)
        self._take_over(graded_in)

    @property
    def left(self) -> list[Submitted]:
        """What is not graded yet, or was submitted again, or belongs to a lab that changed."""
        return [one for one in self.submitted if (one.student, one.lab.id) not in self.known]

    def grade(self, jobs: int) -> Iterator[Result]:
        """Grade what is left. Each result is on the disk before it is yielded: the next run resumes a killed one."""
        work = [work_for(one, self._key, self._content[one.lab.id]) for one in self.left]
        with ResultsFile(self.out / RESULTS) as file:
            for result in grade_all(work, jobs):
                signed = result.signed(self._key)
                file.add(signed)
                self.known[signed.student, signed.lab] = signed
                yield signed

    def write_pages(self) -> dict[str, Any]:
        """Write the PAGES, and return the document of results.json."""
        results = [self.known[key] for key in sorted(self.known)]
        page = as_html(results, self.labs, self._pairs(), self.not_read).encode()
        hashes = {HTML: hashlib.sha256(page).hexdigest()}
        signed = document(results, self._key, not_read=self.not_read, pages=hashes)
        texts = (json.dumps(signed, indent=2, ensure_ascii=False).encode() + b"\n", as_csv(results).encode(), page)
        for name, text in zip(PAGES, texts, strict=True):
            write_atomically(self.out / name, text)
        return signed

    def _take_over(self, folders: Sequence[Path]) -> None:
        """Add the results of other runs that hold here, and write them to this run's file."""
        with ResultsFile(self.out / RESULTS) as file:
            for folder in folders:
                for one, result in self._known(folder).items():
                    if one not in self.known:
                        file.add(result)
                        self.known[one] = result

    def _known(self, folder: Path) -> dict[tuple[str, str], Result]:
        """The results in a folder that still hold: same files, same lab, and the key's signature."""
        earlier = read_results(folder / RESULTS)
        held = {}
        for one in self.submitted:
            result = earlier.get((one.student, one.lab.id))
            same = result is not None and (result.submission, result.content) == (one.digest, self._content[one.lab.id])
            if result is not None and same and result.verdict != "error" and result.is_signed_by(self._key):
                held[one.student, one.lab.id] = result
        return held

    def _pairs(self) -> dict[str, list[Pair]]:
        found = {}
        for lab in self.labs:
            texts = {one.student: _text(one.files, lab) for one in self.submitted if one.lab == lab and one.files}
            starter, solution = (_text(_files(folder, lab), lab) for folder in (lab.folder, lab.solution))
            found[lab.id] = near_identical(texts, starter, solution)
        return found


def changed_results(out: Path, key: Path | None = None) -> tuple[int, list[Difference]]:
    """How many results `out` has, and what was changed in its files. Raises UsageError."""
    found = key or out / KEY
    for needed in (*(out / name for name in (RESULTS, *PAGES)), found):
        _expect_file(needed)
    return differences(out, found)


def _expect_file(path: Path) -> None:
    if not path.is_file():
        raise UsageError(f"{path} is missing. Give the folder that `lab class grade` wrote its results to.")


def _is_inside(path: Path, folder: Path) -> bool:
    return folder.is_dir() and path.absolute().is_relative_to(folder.absolute())


def _files(folder: Path, lab: Lab) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in lab.editable if (folder / name).is_file()}


def _text(files: dict[str, bytes], lab: Lab) -> str:
    return "\n".join(files[name].decode("utf-8", errors="replace") for name in lab.editable if name in files)
