"""What became of every mutant of a lab, in the lab's `mutants.json`, and whether that is still true."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

import msgspec

from labs.authoring.content_hash import decided_by
from labs.grading.catalog import Lab
from labs.grading.declarations import Kind
from labs.learner.atomic_file import write_atomically

FILE = "mutants.json"
Outcome = Literal["refused", "equivalent", "hole"]


class MutantRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One mutant. `check` refused it, a check of the kind `by`; an equivalent one has a `reason`."""

    id: str
    operator: str
    file: str
    line: int
    summary: str
    outcome: Outcome
    check: str | None = None
    by: Kind | None = None
    named: str | None = None
    """The wrong fix whose name the feedback gives it, in a run with names."""
    reason: str | None = None
    grader_error: str | None = None
    """Set where a check went wrong on this mutant instead of judging it: that is a hole as well."""


class Counts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many mutants ended in which way."""

    mutants: int
    refused_structural: int
    refused_outcome: int
    equivalent: int
    holes: int


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run of all mutants of one lab."""

    schema: int
    lab: str
    date: str
    torch: str
    content: str
    """Hash over the files that decide the result."""
    seed: int
    outcomes: bool
    """Whether the mutants that passed the structural checks were trained as well."""
    cpu_s: float
    counts: Counts
    mutants: tuple[MutantRecord, ...]


def make_record(lab: Lab, mutants: tuple[MutantRecord, ...], *, seed: int, outcomes: bool, cpu_s: float) -> Record:
    """The record of a run made now."""
    import torch

    return Record(
        schema=1,
        lab=lab.id,
        date=datetime.now(UTC).date().isoformat(),
        torch=str(torch.__version__),
        content=decided_by(lab),
        seed=seed,
        outcomes=outcomes,
        cpu_s=round(cpu_s, 1),
        counts=_count(mutants),
        mutants=mutants,
    )


def write_record(lab: Lab, record: Record) -> None:
    """Write `mutants.json`, a line for each mutant. Raises OSError."""
    *head, _ = msgspec.json.format(msgspec.json.encode(msgspec.structs.replace(record, mutants=())), indent=2).split(
        b'"mutants": []'
    )
    lines = b",\n    ".join(msgspec.json.encode(one) for one in record.mutants)
    write_atomically(lab.folder / FILE, b'"mutants": []'.join(head) + b'"mutants": [\n    ' + lines + b"\n  ]\n}\n")


def read_record(lab: Lab) -> Record | None:
    """The lab's record; None where there is none. Raises msgspec.DecodeError."""
    try:
        return msgspec.json.decode((lab.folder / FILE).read_bytes(), type=Record)
    except FileNotFoundError:
        return None


def why_not_current(lab: Lab) -> str | None:
    """None if the lab's files are those of its record, else a sentence that says what to run."""
    again = f"`lab dev mutate {lab.id} --outcomes --write` does it."
    try:
        record = read_record(lab)
    except msgspec.DecodeError as error:
        return f"{lab.name}/{FILE} cannot be read ({error}). {again}"
    if record is None:
        return f"The checks of lab {lab.id} were never tested with mutants. {again}"
    if record.content != decided_by(lab):
        return f"Lab {lab.id} has changed since its mutants were graded on {record.date}. {again}"
    return None


def _count(mutants: tuple[MutantRecord, ...]) -> Counts:
    by_outcome = sum(one.outcome == "refused" and one.by == "outcome" for one in mutants)
    return Counts(
        mutants=len(mutants),
        refused_structural=sum(one.outcome == "refused" for one in mutants) - by_outcome,
        refused_outcome=by_outcome,
        equivalent=sum(one.outcome == "equivalent" for one in mutants),
        holes=sum(one.outcome == "hole" for one in mutants),
    )
