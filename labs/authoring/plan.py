"""Which labs `lab dev verify` grades, how much of each, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from labs.authoring.verified import Stale, why_stale
from labs.grading.catalog import Lab

Scope = Literal["files", "rules", "changes", "all"]
"""`files`: read the files. `rules`: also run debugkit on starter and correct fixes. `all`: also grade submissions.

`changes`: the same without the grades that a change of checks and new submissions cannot alter.
"""


@dataclass(frozen=True)
class Task:
    """One lab's share of the work. `why` says what makes it necessary; None where all labs were asked for."""

    lab: Lab
    scope: Scope
    why: str | None = None


def plan(labs: Iterable[Lab], *, changed: bool) -> list[Task]:
    """A task for each lab. With `changed`, a lab whose full verification holds is only read, not graded.

    Where only checks, recognisers or new variants are different, the grades that do not depend on them are left out.
    Where debugkit alone changed, its rules run on the starter and the correct fixes: grades do not depend on it. What a
    lab itself uses of debugkit is one of the lab's own files.
    """
    return [_task(lab, why_stale(lab)) if changed else Task(lab, "all") for lab in labs]


def _task(lab: Lab, stale: Stale | None) -> Task:
    if stale is None:
        return Task(lab, "files")
    if stale.changed == ("debugkit",):
        return Task(lab, "rules", stale.sentence)
    return Task(lab, "all" if stale.changes is None else "changes", stale.sentence)
