"""The documentation page about mutants, made from the labs' committed `mutants.json` files."""

from __future__ import annotations

from collections.abc import Iterable

from labs.authoring.chance import SeedsRecord, read_seeds, seeds_of
from labs.authoring.mutation.catalogue import all_operators
from labs.authoring.mutation.hunks import OPERATOR, SENTENCE
from labs.authoring.mutation.record import Record, read_record, why_not_current
from labs.grading.catalog import Lab


def mutation_page(labs: Iterable[Lab]) -> str:
    """The page in Markdown: how many mutants each lab has, what became of them, and the catalogue of operators."""
    records = {lab: read_record(lab) for lab in labs}
    rows = [(lab, record) for lab, record in records.items() if record is not None]
    untested = [lab.id for lab, record in records.items() if record is None]
    lines = [
        "# Mutants",
        "",
        "A lab's checks are tested with mutants: small changes of the solution, such as a `detach()` left out, an",
        "axis moved by one, or a fix that applies only in training mode. A check must refuse each of them, unless",
        "the mutant is equivalent to the solution, and then a reason says why. A mutant that is neither is a hole",
        "in the checks. `lab dev mutate NN` runs them.",
        "",
        "| Lab | Mutants | Refused by structural checks | Refused by outcome checks | Equivalent | Holes | Date |",
        "|---|---:|---:|---:|---:|---:|---|",
        *(_row(lab, record) for lab, record in rows),
        _total([record for _, record in rows]),
        "",
        *([f"Not tested with mutants yet: {', '.join(untested)}.", ""] if untested else []),
        "Structural checks compare the submission with a reference and test what must hold of any fix; outcome checks",
        "train it. Where outcome checks did not run, the column says so, and mutants that only training would refuse",
        "count as holes.",
        "",
        *_seeds(records),
        "## What is changed",
        "",
        "| Operator | Change |",
        "|---|---|",
        f"| `{OPERATOR}` | {SENTENCE} |",
        *(f"| `{one.name}` | {one.sentence} |" for one in all_operators()),
        "",
        "Docstrings, types, imports, printed text and error messages are not changed.",
        "",
    ]
    return "\n".join(lines)


def _seeds(labs: Iterable[Lab]) -> list[str]:
    """On how many seeds the structural checks passed every correct fix."""
    rows = {lab: record for lab in labs if (record := read_seeds(lab)) is not None}
    if not rows:
        return []
    return [
        "## Correct fixes on many seeds",
        "",
        "A check draws its inputs from a seed. So the structural checks of the solution and of every alternative run",
        "on many seeds, and none may be refused by chance. `lab dev verify NN --seeds 200` runs those not yet run.",
        "After a change, the checks and alternatives that changed run again; the table counts the seeds on which",
        "everything has run.",
        "",
        "| Lab | Correct fixes | Seeds | Refused | Date |",
        "|---|---:|---:|---:|---|",
        *(_seeds_row(lab, record) for lab, record in rows.items()),
        "",
    ]


def _seeds_row(lab: Lab, record: SeedsRecord) -> str:
    seeds = seeds_of(lab)
    since = "" if seeds else ", changed since"
    return f"| {lab.id} {lab.title} | {len(record.seeds)} | {seeds} | 0 | {record.date}{since} |"


def _row(lab: Lab, record: Record) -> str:
    counts = record.counts
    since = "" if why_not_current(lab) is None else ", changed since"
    by_outcome = counts.refused_outcome if record.outcomes else "not run"
    return (
        f"| {lab.id} {lab.title} | {counts.mutants} | {counts.refused_structural} | {by_outcome} "
        f"| {counts.equivalent} | {counts.holes} | {record.date}{since} |"
    )


def _total(records: list[Record]) -> str:
    counts = [record.counts for record in records]
    sums = (
        sum(one.mutants for one in counts),
        sum(one.refused_structural for one in counts),
        sum(one.refused_outcome for one in counts),
        sum(one.equivalent for one in counts),
        sum(one.holes for one in counts),
    )
    return f"| **All {len(records)}** | {' | '.join(f'**{value}**' for value in sums)} | |"
