"""The dated record of a full verification, in `solutions/<lab>/verified.json`, and whether it still holds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from debugkit.rule_text import listed
from labs.authoring.content_hash import Content, content_of
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


@dataclass(frozen=True)
class Stale:
    """Why a lab must be verified again. `changed` names parts of `PARTS`; it is empty if there is no usable record."""

    changed: tuple[str, ...]
    sentence: str


def write_verified(lab: Lab, grades: int, margins: dict[str, float | None]) -> None:
    """Record a full verification made now. Raises OSError."""
    import torch

    result = Verified(
        schema=SCHEMA,
        date=datetime.now(UTC).date().isoformat(),
        content=content_of(lab),
        grades=grades,
        torch=str(torch.__version__),
        margins=margins,
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
    return Stale(changed, f"{listed([PARTS[part] for part in changed])} changed since {result.date}")


class _AnySchema(msgspec.Struct):
    schema: int
