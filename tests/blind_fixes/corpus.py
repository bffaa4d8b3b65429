"""Wrong fixes written from the starter and the lesson alone: two trials of every lab, and two of a part of them.

    python tests/blind_fixes/corpus.py          # grade all of them, and record the verdicts
    python tests/blind_fixes/corpus.py 03 54    # only those of these labs

Each is an edit in the form of `labs.authoring.edits`; `why` is a situation in which its behaviour is not what the
starter promises. The first verdict of a fix is kept: a check that was written because of a fix is no evidence for
other fixes. That is why there is a second trial, with checks that were written because of the first, and a third one
of the labs whose docstrings had been gone through sentence by sentence because of the second. The fourth one is of all
other labs.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from labs.authoring.bench import Bench
from labs.authoring.variants import Variant, base_files, read_variant
from labs.grading import grade
from labs.grading.catalog import Lab, all_labs, find
from labs.grading.sandbox.fork_server import ForkServer

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.toml"
TRIALS = {"trial_1": 174, "trial_2": 116, "trial_3": 29, "trial_4": 86}
"""How many wrong fixes each trial has."""
ACCEPTED = "accepted"
DISPUTED = "disputed"
"""In place of the second verdict: an alternative or an equivalent mutant of the lab does the same."""
_HEAD = f"""# For each wrong fix the check that refused it at first, and the one that refuses it now; or `{ACCEPTED}`.
# `{DISPUTED}`: accepted, and an alternative or an equivalent mutant of the lab does the same.
"""
Results = dict[str, dict[str, list[str]]]
"""By lab and wrong fix, the verdict of the first grade and the present one."""


@dataclass(frozen=True)
class Counts:
    """How many wrong fixes there are, were accepted at first, are accepted now, and how many of these are disputed."""

    fixes: int
    first: int
    now: int
    disputed: int


def fixes_of(trial: str, lab: Lab) -> list[Variant]:
    """The lab's wrong fixes, by name. Raises EditError for a file that cannot be read as an edit."""
    return [read_variant(path) for path in sorted((FOLDER / trial / lab.id).glob("*.diff"))]


def results() -> dict[str, Results]:
    """The verdicts of each trial."""
    recorded = tomllib.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    return {trial: recorded.get(trial, {}) for trial in TRIALS}


def counts(recorded: Results) -> Counts:
    """Those of one trial."""
    verdicts = [verdict for own in recorded.values() for verdict in own.values()]
    now = [verdict[1] for verdict in verdicts]
    first = sum(verdict[0] == ACCEPTED for verdict in verdicts)
    return Counts(len(verdicts), first, now.count(ACCEPTED) + now.count(DISPUTED), now.count(DISPUTED))


def verdicts_of(lab: Lab, fixes: Sequence[Variant], server: ForkServer) -> Iterator[tuple[str, str]]:
    """The name of each wrong fix and the check that refuses it; what the structural checks pass is trained, too."""
    files = {fix.name: fix.files(lab) for fix in fixes}
    verdicts = Bench(lab, server).verdicts(base_files(lab, "solution"), files.items(), lab.seeds[0], lambda _: None)
    for name, verdict in verdicts.items():
        yield name, verdict.refusal.check if verdict.refusal else _outcome(lab, files[name], server)


def _outcome(lab: Lab, files: Mapping[str, str], server: ForkServer) -> str:
    graded = grade(lab, files, seed=lab.seeds[0], server=server, answers=False)
    return next((check.id for check in graded.checks if check.outcome != "passed"), ACCEPTED)


def _record(numbers: Sequence[str], server: ForkServer) -> None:
    recorded = results()
    for lab in [find(number) for number in numbers] or all_labs():
        fixes = {fix.name: (trial, fix) for trial in TRIALS for fix in fixes_of(trial, lab)}
        for name, verdict in verdicts_of(lab, [fix for _, fix in fixes.values()], server):
            own = recorded[fixes[name][0]].setdefault(lab.id, {})
            known = own.get(name, [verdict, verdict])
            own[name] = [known[0], DISPUTED if (known[1], verdict) == (DISPUTED, ACCEPTED) else verdict]
            sys.stdout.write(f"{lab.id} {name}: {', then '.join(own[name])}\n")
            sys.stdout.flush()
        RESULTS.write_text(_as_text(recorded), encoding="utf-8")


def _as_text(recorded: Mapping[str, Results]) -> str:
    lines = [_HEAD.rstrip()]
    for trial, labs in recorded.items():
        for number, own in sorted(labs.items()):
            lines += ["", f"[{trial}.{number}]"]
            lines += [f'{name} = ["{one}", "{other}"]' for name, (one, other) in sorted(own.items())]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    with ForkServer() as server:
        _record(sys.argv[1:], server)
