"""Export and import of progress, and its JSON document."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from labs.grading.catalog import Lab
from labs.learner.atomic_file import write_atomically
from labs.learner.progress import SCHEMA, Progress, ProgressError, decode, encode, merged, record
from labs.learner.status import learner_status, xp_for
from labs.learner.workspace import Workspace


def export_progress(progress: Progress, to: Path) -> None:
    """Write progress to a file, or to stdout for `-`. Raises OSError."""
    if str(to) == "-":
        sys.stdout.write(encode(progress).decode())
    else:
        write_atomically(to, encode(progress))


def import_progress(workspace: Workspace, source: Path) -> int:
    """Merge an exported file into the workspace and return how many labs it held. Raises ProgressError, OSError."""
    try:
        theirs = decode(source.read_bytes(), str(source))
    except msgspec.DecodeError as error:
        raise ProgressError(
            f"{source} is not an exported progress file ({error}). `lab progress --export FILE` writes one. "
            "Nothing was changed."
        ) from None
    record(workspace, merged(theirs))
    return len(theirs.labs)


def progress_document(
    progress: Progress, labs: Sequence[Lab], mysteries: Sequence[Lab] = (), capstones: Sequence[Lab] = ()
) -> dict[str, Any]:
    """The JSON document of `lab progress --json`."""
    now = learner_status(progress, labs, (*capstones, *mysteries))
    return {
        "schema": SCHEMA,
        "xp": now.xp,
        "level": now.level,
        "level_name": now.level_name,
        "next_level_at": now.next_level_at,
        "achievements": [{"name": one.name, "how": one.how} for one in now.achievements],
        "labs": [_lab(lab, progress) for lab in labs if lab.id in progress.labs],
        "capstones": [_lab(lab, progress) for lab in capstones if lab.id in progress.labs],
        "mysteries": [_lab(lab, progress) for lab in mysteries],
    }


def _lab(lab: Lab, progress: Progress) -> dict[str, Any]:
    done = progress.labs[lab.id]
    return {
        "id": lab.id,
        "slug": lab.slug,
        "status": done.status,
        "grades": done.grades,
        "hints": done.hints,
        "started_at": _iso(done.started_at),
        "passed_at": _iso(done.passed_at),
        "gave_up_at": _iso(done.gave_up_at),
        "seconds_to_fix": done.seconds_to_fix,
        "wrong_fixes": list(done.wrong_fixes),
        "xp": xp_for(lab, done),
    }


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
