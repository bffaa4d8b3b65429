"""The results of a class: one line of JSON for each grade, written when it ends, so that a kill loses nothing."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from labs.classroom.key import sign

SCHEMA = 1
RESULTS, JSON, CSV, HTML = "results.jsonl", "results.json", "results.csv", "index.html"
"""The files of a class's results."""
Verdict = Literal["passed", "failed", "error", "missing"]


@dataclass(frozen=True)
class Result:
    """The result of one learner's submission of one lab."""

    student: str
    lab: str
    """The lab's number."""
    verdict: Verdict
    """`missing`: the learner submitted nothing for this lab. `error`: the grader failed, and the learner did not."""
    reason: str
    wrong_fix: str | None
    """The name of the wrong fix that was recognised."""
    failed_checks: tuple[str, ...]
    seconds: float
    seed: int
    submission: str
    """SHA-256 of the submitted files."""
    content: str
    """SHA-256 of what decided the verdict: the lab, the healthy library and the grader."""
    graded_at: str
    """UTC, ISO 8601."""
    signature: str = ""
    """HMAC-SHA256 of all other fields with the class's key."""

    def signed(self, key: bytes) -> Result:
        """The result with its signature."""
        return replace(self, signature=sign(key, self._unsigned()))

    def is_signed_by(self, key: bytes) -> bool:
        """Whether the signature is the key's, so that no field was changed since."""
        return self.signature == sign(key, self._unsigned())

    def _unsigned(self) -> dict[str, Any]:
        data = asdict(self)
        del data["signature"]
        return data


class ResultsFile:
    """`results.jsonl`: the last line of a learner and a lab counts. A half-written last line is ignored."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("a+b")
        self._end_the_last_line()

    def __enter__(self) -> ResultsFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, result: Result) -> None:
        """Write a result to the disk before returning."""
        self._file.write((json.dumps(asdict(result), ensure_ascii=False) + "\n").encode())
        self._file.flush()
        os.fsync(self._file.fileno())

    def _end_the_last_line(self) -> None:
        """A killed writer may have left a part of a line."""
        self._file.seek(0, os.SEEK_END)
        if self._file.tell() and not self.path.read_bytes().endswith(b"\n"):
            self._file.write(b"\n")


def read_results(path: Path) -> dict[tuple[str, str], Result]:
    """The last result of each learner and lab; lines that cannot be read are left out."""
    found: dict[tuple[str, str], Result] = {}
    if not path.exists():
        return found
    for line in path.read_bytes().splitlines():
        with contextlib.suppress(ValueError):
            if (result := result_of(json.loads(line))) is not None:
                found[result.student, result.lab] = result
    return found


def result_of(data: Any) -> Result | None:
    """A result from its JSON; None if it is not one."""
    try:
        result = Result(**{**data, "failed_checks": tuple(data["failed_checks"])})
    except (TypeError, KeyError):
        return None
    return result if isinstance(result.student, str) and isinstance(result.lab, str) else None


def document(
    results: Iterable[Result], key: bytes, *, not_read: Iterable[str] = (), pages: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The results as one JSON document, signed as a whole.

    `not_read`: the names of the export that belong to no learner. `pages`: the SHA-256 of each page written with it.
    """
    unsigned = {
        "schema": SCHEMA,
        "results": [asdict(one) for one in results],
        "not_read": list(not_read),
        "pages": dict(pages or {}),
    }
    return {**unsigned, "signature": _signature(unsigned, key)}


def is_document_signed_by(document: Mapping[str, Any], key: bytes) -> bool:
    """Whether the signature is the key's, so that no row was changed, added or removed since."""
    unsigned = {name: value for name, value in document.items() if name != "signature"}
    return bool(unsigned) and document.get("signature") == _signature(unsigned, key)


def _signature(unsigned: Mapping[str, Any], key: bytes) -> str:
    return sign(key, json.loads(json.dumps(unsigned)))  # as it is read back: a tuple is a list
