"""The dated result of a full verification, in `solutions/<lab>/verified.json`, and whether it still holds."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from labs.authoring.content_hash import RESULT, content_hash
from labs.grading.catalog import Lab
from labs.learner.atomic_file import write_atomically


class Verified(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A full verification that found nothing."""

    schema: int
    date: str
    content: str
    grades: int
    torch: str
    margins: dict[str, float | None]
    """Per outcome check, standard errors between the solution's mean and the bar; null where all seeds agree."""


def write_verified(lab: Lab, grades: int, margins: dict[str, float | None]) -> None:
    """Record a full verification made now. Raises OSError."""
    import torch

    result = Verified(
        schema=1,
        date=datetime.now(UTC).date().isoformat(),
        content=content_hash(lab),
        grades=grades,
        torch=str(torch.__version__),
        margins=margins,
    )
    content = msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"
    write_atomically(lab.solution / RESULT, content)


def why_not_verified(lab: Lab) -> str | None:
    """None if the lab's files are those that were verified, else a sentence that says what to run."""
    again = f"`lab dev verify {lab.id} --full` verifies it."
    try:
        result = msgspec.json.decode((lab.solution / RESULT).read_bytes(), type=Verified)
    except FileNotFoundError:
        return f"Lab {lab.id} was never fully verified. {again}"
    except msgspec.DecodeError as error:
        return f"solutions/{lab.name}/{RESULT} cannot be read ({error}). {again}"
    if result.content != content_hash(lab):
        return f"Lab {lab.id} has changed since it was verified on {result.date}. {again}"
    return None
