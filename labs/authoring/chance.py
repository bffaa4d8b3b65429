"""No correct fix is refused by chance: structural checks on many seeds, and their record.

The record, `solutions/<lab>/seeds.json`, grows: what ran before is not repeated, and a run that is cut off
keeps all but its last few seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import msgspec

from labs.authoring import grading_rules
from labs.authoring.bench import Bench
from labs.authoring.content_hash import SEEDS_RECORD, decided_by
from labs.authoring.variants import alternatives, base_files
from labs.authoring.violation import Violation
from labs.grading.catalog import Lab
from labs.grading.sandbox.launch import Launcher
from labs.learner.atomic_file import write_atomically

FIRST_SEED = 1_000_000
"""No other grade uses the seeds from here on."""
AT_ONCE = 20
"""After so many seeds the record is written."""
SCHEMA = 1


class SeedsRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The seeds from `FIRST_SEED` on with which no structural check refused a correct fix."""

    schema: int
    date: str
    torch: str
    content: str
    """Hash over the files that decide the result."""
    correct: int
    """The number of correct fixes: the solution and the alternatives."""
    seeds: int


def refusals_by_chance(
    lab: Lab, launcher: Launcher, seeds: int, say: Callable[[str], None] = lambda _: None
) -> Iterator[Violation]:
    """Run the structural checks of everything that must pass on the first `seeds` seeds that are not recorded yet.

    Ends after the first group of seeds in which a correct fix is refused. Raises BenchError, OSError.
    """
    correct = correct_fixes(lab)
    bench = Bench(lab, launcher)
    done = seeds_of(lab)
    while done < seeds:
        group = range(FIRST_SEED + done, FIRST_SEED + min(done + AT_ONCE, seeds))
        for name, files in correct.items():
            step = f"{name}, {done + len(group)} seeds"
            found = bench.over_seeds(files, group, lambda at, step=step: say(f"{step}: {at}"))
            violations = list(
                grading_rules.judge_chance(name, {seed: one.message for seed, one in found.items()}, len(group))
            )
            yield from violations
            if violations:
                return
        done += len(group)
        _write(lab, len(correct), done)


def correct_fixes(lab: Lab) -> dict[str, dict[str, str]]:
    """The files of everything that must pass, the solution first. Raises OSError."""
    correct = {"the solution": base_files(lab, "solution")}
    return correct | {alternative.label: alternative.files(lab) for alternative in alternatives(lab)}


def seeds_of(lab: Lab) -> int:
    """On how many seeds no correct fix was refused; 0 without a record, or where the lab has changed since."""
    record = read_seeds(lab)
    return record.seeds if record is not None and record.content == decided_by(lab) else 0


def read_seeds(lab: Lab) -> SeedsRecord | None:
    """The lab's record, which may be of an earlier state; None where there is none that can be read."""
    try:
        return msgspec.json.decode((lab.solution / SEEDS_RECORD).read_bytes(), type=SeedsRecord)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _write(lab: Lab, correct: int, seeds: int) -> None:
    import torch

    record = SeedsRecord(
        schema=SCHEMA,
        date=datetime.now(UTC).date().isoformat(),
        torch=str(torch.__version__),
        content=decided_by(lab),
        correct=correct,
        seeds=seeds,
    )
    content = msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"
    write_atomically(lab.solution / SEEDS_RECORD, content)
