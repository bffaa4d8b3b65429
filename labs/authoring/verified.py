"""The dated record of a full verification, in `solutions/<lab>/verified.json`, and whether it still holds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from debugkit.rule_text import listed
from labs.authoring.content_hash import Content, content_of
from labs.authoring.edits import EditError
from labs.authoring.parts import Changes, Parts, changes_between, parts_of
from labs.capstones.capstone import Capstone
from labs.grading.catalog import Lab
from labs.learner.atomic_file import write_atomically

RECORD = "verified.json"
SCHEMA = 2
PARTS = {
    "lab": "its own files",
    "library": "the healthy library",
    "grader": "the grader",
    "debugkit": "debugkit",
}
"""What a verification depends on, as `Content` and as messages name it."""


class Verified(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A full verification that found no violation."""

    schema: int
    date: str
    content: Content
    grades: int
    torch: str
    margins: dict[str, float | None]
    """Per outcome check, standard errors between the solution's mean and the bar; null where all seeds agree."""
    whole: str | None = None
    """The date of the last verification that graded everything; null if it is this one."""
    parts: Parts | None = None
    """What each check and submission depended on; null for a capstone."""


@dataclass(frozen=True)
class Stale:
    """Why a lab must be verified again. `changed` names parts of `PARTS`; it is empty if there is no usable record."""

    changed: tuple[str, ...]
    sentence: str
    record: Verified | None = None
    changes: Changes | None = None
    """What changed of its own files, where the other grades of `record` still hold."""


def write_verified(lab: Lab, grades: int, margins: dict[str, float | None], *, before: Verified | None = None) -> None:
    """Record a full verification made now. With `before`, only what has changed since then was graded.

    Raises OSError.
    """
    import torch

    result = Verified(
        schema=SCHEMA,
        date=datetime.now(UTC).date().isoformat(),
        content=content_of(lab),
        grades=grades,
        torch=str(torch.__version__),
        margins=margins if before is None else before.margins | margins,
        whole=None if before is None else before.whole or before.date,
        parts=_parts(lab),
    )
    _write(lab, result)


def _write(lab: Lab, result: Verified) -> None:
    content = msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"
    write_atomically(lab.solution / RECORD, content)


def renew(lab: Lab) -> None:
    """Record that the lab's last verification holds for debugkit as it is now. Raises OSError, msgspec.DecodeError."""
    path = lab.solution / RECORD
    result = msgspec.json.decode(path.read_bytes(), type=Verified)
    content = msgspec.structs.replace(result.content, debugkit=content_of(lab).debugkit)
    _write(lab, msgspec.structs.replace(result, content=content))


def complete(lab: Lab) -> None:
    """Add to a record that holds what each part depends on, if it is from before there were parts. Raises OSError."""
    path = lab.solution / RECORD
    if path.is_file() and why_stale(lab) is None:
        result = msgspec.json.decode(path.read_bytes(), type=Verified)
        if result.parts is None and (parts := _parts(lab)) is not None:
            _write(lab, msgspec.structs.replace(result, parts=parts))


def _parts(lab: Lab) -> Parts | None:
    return None if isinstance(lab, Capstone) else parts_of(lab)


def why_stale(lab: Lab) -> Stale | None:
    """None while the lab's full verification holds, otherwise what has changed since. Never raises for a bad record."""
    try:
        recorded = (lab.solution / RECORD).read_bytes()
    except FileNotFoundError:
        return Stale((), "never fully verified")
    try:
        schema = msgspec.json.decode(recorded, type=_AnySchema).schema
        if schema != SCHEMA:
            return Stale((), f"{RECORD} has an older format (schema {schema})")
        result = msgspec.json.decode(recorded, type=Verified)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Stale((), f"{RECORD} cannot be read: {error}")
    now = content_of(lab)
    changed = tuple(part for part in PARTS if getattr(result.content, part) != getattr(now, part))
    if not changed:
        return None
    changes = _changes(lab, result) if set(changed) <= {"lab", "debugkit"} and "lab" in changed else None
    what = [PARTS[part] for part in changed if part != "lab" or changes is None]
    if changes is not None:
        what = [*sorted(changes.checks), *sorted(changes.added), *what] or ["its recognisers or its probe"]
    return Stale(changed, f"{listed(what)} changed since {result.date}", result, changes)


def _changes(lab: Lab, result: Verified) -> Changes | None:
    if result.parts is None:
        return None
    try:
        return changes_between(lab, result.parts, parts_of(lab))
    except (SyntaxError, OSError, EditError):  # `lint` says what is wrong with the file
        return None


class _AnySchema(msgspec.Struct):
    schema: int
