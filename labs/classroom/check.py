"""Whether the results of a class are as `lab class grade` wrote them, in every file that an instructor opens."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from labs.classroom.key import read_key
from labs.classroom.results import CSV, HTML, JSON, RESULTS, Result, is_document_signed_by, read_results, result_of
from labs.classroom.tables import COLUMNS, csv_row

Kind = Literal["unsigned", "different", "missing", "extra", "file"]
_Key = tuple[str, str]
"""A learner and a lab."""


@dataclass(frozen=True)
class Difference:
    """One row of a file, or a whole file, that is not as it was written."""

    file: str
    kind: Kind
    """`unsigned`: the row lacks the key's signature. `different`, `missing`, `extra`: compared with the signed results.
    `file`: the file as a whole."""
    student: str = ""
    lab: str = ""


def differences(out: Path, key: Path) -> tuple[int, list[Difference]]:
    """How many results `out` has, and what was changed in them, by learner and lab. Raises OSError, ClassKeyError."""
    secret = read_key(key)
    lines = read_results(out / RESULTS)
    document = _document(out / JSON)
    rows, whole = _rows(document), is_document_signed_by(document, secret)
    found = []
    signed = {}
    for one in sorted(lines.keys() | rows.keys()):
        for file, row in ((RESULTS, lines.get(one)), (JSON, rows.get(one))):
            if row is not None and row.is_signed_by(secret):
                signed.setdefault(one, row)
            elif row is not None:
                found.append(Difference(file, "unsigned", *one))
        if one not in lines:
            found.append(Difference(RESULTS, "missing", *one))
        elif one not in rows and not whole:  # else it is of a lab or a part that the last run left out
            found.append(Difference(JSON, "missing", *one))
        elif one in rows and rows[one] != signed.get(one, rows[one]) and rows[one].is_signed_by(secret):
            found.append(Difference(JSON, "different", *one))
    if not whole and not any(one.file == JSON for one in found):
        found.append(Difference(JSON, "file"))
    if whole:
        found += _in_the_csv(out / CSV, {one: signed[one] for one in rows if one in signed})
        page = hashlib.sha256((out / HTML).read_bytes()).hexdigest()
        found += [Difference(HTML, "file")] if document["pages"].get(HTML) != page else []
    else:
        found += _in_the_csv(out / CSV, signed)
    return len(lines.keys() | rows.keys()), sorted(found, key=lambda one: (one.student, one.lab))


def _document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _rows(document: Mapping[str, Any]) -> dict[_Key, Result]:
    """The rows of results.json; those that cannot be read are left out, and then its signature does not hold."""
    results = document.get("results")
    read = [result_of(one) for one in results] if isinstance(results, list) else []
    return {(one.student, one.lab): one for one in read if one is not None}


def _in_the_csv(path: Path, signed: Mapping[_Key, Result]) -> list[Difference]:
    """Compared as text, cell by cell."""
    expected = {(row[0], row[1]): (one, row) for one, result in signed.items() for row in [csv_row(result)]}
    head, *rows = csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig", errors="replace"), newline="")) or [[]]
    found = [] if tuple(head) == COLUMNS else [Difference(CSV, "file")]
    for row in rows:
        student, lab = (*row, "", "")[:2]
        one, wanted = expected.pop((student, lab), ((student, lab), None))
        if row != wanted:
            found.append(Difference(CSV, "extra" if wanted is None else "different", *one))
    return found + [Difference(CSV, "missing", *one) for one, _ in expected.values()]
