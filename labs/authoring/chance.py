"""No correct fix is refused by chance: structural checks on many seeds, and their record.

The record, `solutions/<lab>/seeds.json`, grows: what ran before is not repeated, and a run that is cut off keeps all
but its last few seeds. After a change of one check or one alternative, only that one runs again, because no check's
verdict depends on the other checks (see `labs.authoring.parts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from labs.authoring import grading_rules
from labs.authoring.bench import Bench
from labs.authoring.content_hash import SEEDS_RECORD, digest, of_the_grading
from labs.authoring.parts import SOLUTION, parts_of
from labs.authoring.variants import alternatives, base_files
from labs.authoring.violation import Violation
from labs.grading.catalog import Lab
from labs.grading.declarations import STRUCTURAL
from labs.grading.runner import declared_by
from labs.grading.sandbox.launch import Launcher
from labs.learner.atomic_file import write_atomically

FIRST_SEED = 1_000_000
"""No other grade uses the seeds from here on."""
AT_ONCE = 20
"""After so many seeds the record is written."""
SCHEMA = 2

Counts = dict[str, dict[str, int]]
"""By correct fix and structural check: on how many seeds from `FIRST_SEED` on it passed."""


class Hashes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """SHA-256 of what decides whether a correct fix passes a structural check."""

    rest: str
    """The healthy library, the grader, and what of the lab is neither a check nor a submission."""
    checks: dict[str, str]
    submissions: dict[str, str]


class SeedsRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """On how many seeds each structural check passed each correct fix."""

    schema: int
    date: str
    torch: str
    hashes: Hashes
    seeds: Counts


@dataclass(frozen=True)
class _Group:
    """Checks of one correct fix that run on the same seeds next."""

    fix: str
    checks: frozenset[str]
    seeds: range


def refusals_by_chance(
    lab: Lab, launcher: Launcher, seeds: int, say: Callable[[str], None] = lambda _: None
) -> Iterator[Violation]:
    """Run the structural checks of everything that must pass on the first `seeds` seeds that are not recorded yet.

    Ends after the first group of seeds in which a correct fix is refused. Raises BenchError, CheckError, OSError.
    """
    hashes, correct = _hashes(lab), correct_fixes(lab)
    counts = _still_true(read_seeds(lab), hashes)
    bench = Bench(lab, launcher)
    while (group := _next_group(counts, seeds)) is not None:
        step = f"{group.fix}, {group.seeds.stop - FIRST_SEED} seeds"
        found = bench.over_seeds(
            correct[group.fix], group.seeds, lambda at, step=step: say(f"{step}: {at}"), checks=group.checks
        )
        messages = {seed: one.message for seed, one in found.items()}
        violations = list(grading_rules.judge_chance(group.fix, messages, len(group.seeds)))
        yield from violations
        if violations:
            return
        counts[group.fix].update(dict.fromkeys(group.checks, group.seeds.stop - FIRST_SEED))
        _write(lab, hashes, counts)


def correct_fixes(lab: Lab) -> dict[str, dict[str, str]]:
    """The files of everything that must pass, the solution first. Raises OSError."""
    correct = {SOLUTION: base_files(lab, "solution")}
    return correct | {alternative.label: alternative.files(lab) for alternative in alternatives(lab)}


def seeds_of(lab: Lab) -> int:
    """On how many seeds no correct fix was refused by any structural check; 0 without a record.

    What has changed since it ran counts as not run. Raises CheckError, OSError.
    """
    record = read_seeds(lab)
    if record is None:
        return 0
    counts = _still_true(record, _hashes(lab))
    return min(count for of_fix in counts.values() for count in of_fix.values())


def read_seeds(lab: Lab) -> SeedsRecord | None:
    """The lab's record, which may be of an earlier state; None where there is none that can be read."""
    try:
        return msgspec.json.decode((lab.solution / SEEDS_RECORD).read_bytes(), type=SeedsRecord)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _hashes(lab: Lab) -> Hashes:
    parts, (library, grader) = parts_of(lab), of_the_grading()
    structural = [one.id for one in declared_by(lab).checks if one.kind in STRUCTURAL]
    return Hashes(
        rest=digest({"lab": parts.rest, "library": library, "grader": grader}),
        checks={name: parts.checks[name] for name in structural},
        submissions={name: parts.submissions[name] for name in correct_fixes(lab)},
    )


def _still_true(record: SeedsRecord | None, now: Hashes) -> Counts:
    """The counts of the record that hold for the present files, and 0 for all others."""
    counts = {fix: dict.fromkeys(now.checks, 0) for fix in now.submissions}
    if record is None or record.hashes.rest != now.rest:
        return counts
    before = record.hashes
    for fix, of_fix in counts.items():
        if before.submissions.get(fix) == now.submissions[fix]:
            of_fix.update(
                {check: record.seeds[fix][check] for check in of_fix if before.checks.get(check) == now.checks[check]}
            )
    return counts


def _next_group(counts: Counts, seeds: int) -> _Group | None:
    """What has run on the fewest seeds; None where everything has run on `seeds` of them."""
    fix, of_fix = min(counts.items(), key=lambda one: min(one[1].values()))
    first = min(of_fix.values())
    if first >= seeds:
        return None
    checks = frozenset(check for check, count in of_fix.items() if count == first)
    end = min([first + AT_ONCE, seeds, *(count for count in of_fix.values() if count > first)])
    return _Group(fix, checks, range(FIRST_SEED + first, FIRST_SEED + end))


def _write(lab: Lab, hashes: Hashes, counts: Counts) -> None:
    import torch

    record = SeedsRecord(
        schema=SCHEMA,
        date=datetime.now(UTC).date().isoformat(),
        torch=str(torch.__version__),
        hashes=hashes,
        seeds=counts,
    )
    content = msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"
    write_atomically(lab.solution / SEEDS_RECORD, content)
