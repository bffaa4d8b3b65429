"""How often debugkit raises a false alarm, and how many planted faults it finds: two numbers and their cases.

    python tests/faults/measure.py            # examine everything and write docs/debugkit/accuracy.md
    python tests/faults/measure.py --check    # examine nothing; exit 1 if the page lists other programs or faults

Not collected by pytest. The tests in this folder and in tests/healthy check each program and each fault.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:1] = [str(TESTS)]

import torch  # noqa: E402 - the programs are importable from here on

from debugkit.finding import Severity  # noqa: E402
from debugkit.rule import all_rules  # noqa: E402
from faults.fault import all_faults, examine  # noqa: E402
from faults.first_attempts import ALARMS, BY_RUN, REAL_FAULTS, TOPICS  # noqa: E402
from healthy.program import all_programs, built  # noqa: E402
from strangers import corpus, distributed  # noqa: E402

PAGE = TESTS.parent / "docs" / "debugkit" / "accuracy.md"
_ROW = re.compile(r"^\| (?:(DK\d{3}) \| )?`(\w+)` \|")


@dataclass(frozen=True)
class Silence:
    """One correct program: what check(), watch() and `debugkit run` said at `error` or `warning`."""

    name: str
    topic: str
    alarms: tuple[str, ...]


@dataclass(frozen=True)
class Detection:
    """One fault: whether it was found with its code, at its place, and nothing else beside it."""

    code: str
    name: str
    of: str
    detected: bool
    note: str
    by_run: bool = False
    """Whether `debugkit run` names it, too."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure debugkit's false alarms and missed faults.")
    parser.add_argument("--check", action="store_true", help="compare what the page lists; examine nothing")
    parser.add_argument("--page", type=Path, default=PAGE, help="the markdown file")
    options = parser.parse_args(arguments)
    if options.check:
        return check(options.page)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    began = time.process_time()
    silences, detections = [silence(name) for name in sorted(all_programs())], [*_detections()]
    options.page.write_text(page(silences, detections, time.process_time() - began), encoding="utf-8")
    sys.stdout.write(f"{options.page}: {_summary(silences, detections)}\n")
    return 0


def check(path: Path) -> int:
    """0 if the page lists each program and each fault there is, and no other; timings and the date are not compared."""
    listed = {match.groups() for line in path.read_text(encoding="utf-8").splitlines() if (match := _ROW.match(line))}
    real = {(None, name) for name in all_programs()} | {(fault.code, fault.name) for fault in all_faults().values()}
    for code, name in sorted(real - listed, key=str):
        sys.stdout.write(f"{path} does not list {code or 'program'} {name}.\n")
    for code, name in sorted(listed - real, key=str):
        sys.stdout.write(f"{path} lists {code or 'program'} {name}, which is not there.\n")
    if real != listed:
        sys.stdout.write("Run `python tests/faults/measure.py` and commit the page.\n")
    return int(real != listed)


def silence(name: str) -> Silence:
    """Examine one correct program, before training, while it runs, and as a script."""
    build, program = all_programs()[name], built(name)
    findings = (*program.check().findings, *program.watch().findings, *built(name).run().findings)
    alarms = [finding.code for finding in findings if finding.severity is not Severity.INFO]
    return Silence(name, build.__module__.rpartition(".")[2], tuple(dict.fromkeys(alarms)))


def _detections() -> list[Detection]:
    made = []
    for fault in sorted(all_faults().values(), key=lambda fault: (fault.code, fault.name)):
        verdict = examine(fault)
        others = [finding.code for finding in (*verdict.misplaced, *verdict.others)]
        note = "" if verdict.detected else "also " + ", ".join(others) if verdict.placed else "missed"
        found = verdict.detected
        made.append(Detection(fault.code, fault.name, fault.of, found, note, fault.is_named_by_run()))
    return made


def page(silences: Sequence[Silence], detections: Sequence[Detection], seconds: float) -> str:
    """The page, with both numbers first."""
    today = f"{datetime.datetime.now(tz=datetime.UTC):%Y-%m-%d}"
    lines = [
        "# How often it is right",
        "",
        _summary(silences, detections),
        "",
        "A false alarm is an `error` or a `warning` on a correct program, from `check()` before training, from",
        "`watch()` while it trains, or from `debugkit run`, which is given no model, batch or loss. A fault is one",
        "edit of one of these programs. It counts as found if the finding has the right code, names the right line,",
        "module or parameter, and nothing else is reported except its consequences and the few codes that the edit",
        "also causes.",
        "",
        _by_run_alone(detections),
        "",
        "The programs were chosen because they look wrong and are correct, and the faults because debugkit has a rule",
        "for them: the second number says that the rules work as documented, not how many of all faults have one.",
        "It is not a first attempt either. Faults and rules were changed together until each fault was found: some had",
        "the wrong line marked, some were not a fault by the rule's definition and were replaced.",
        "",
        "Two other pages have its results on [training scripts of public repositories](third_party.md) and on",
        "[faults planted at random](injection.md), which were not tuned to the rules.",
        "",
        *_without_a_fault(detections),
        f"Measured on {today} with torch {torch.__version__} by `python tests/faults/measure.py`, "
        f"in {seconds:.0f} CPU seconds.",
        "",
        *_first_attempts(silences),
        "## Programs in the manner of other people's code",
        "",
        corpus.summary(),
        "",
        distributed.summary(),
        "",
        "## Correct programs",
        "",
        "| program | topic | false alarms |",
        "|---|---|---|",
        *(f"| `{each.name}` | {each.topic.replace('_', ' ')} | {', '.join(each.alarms) or '–'} |" for each in silences),
        "",
        "## Faults",
        "",
        "| code | fault | planted in | found |",
        "|---|---|---|---|",
        *(f"| {d.code} | `{d.name}` | `{d.of}` | {'yes' if d.detected else d.note} |" for d in detections),
    ]
    return "\n".join(lines) + "\n"


def _by_run_alone(detections: Sequence[Detection]) -> str:
    named = sum(each.by_run for each in detections)
    return f"`debugkit run` alone names {named} of these {len(detections)} faults. The others need `check()`."


def _first_attempts(silences: Sequence[Silence]) -> list[str]:
    """What was said of the programs that were written before any rule was tried on them."""
    names = {each.name for each in silences if each.topic in TOPICS}
    if not names:
        return []
    alarms = {name: what for name, what in sorted(ALARMS.items()) if name in names}
    return [
        "## First attempts",
        "",
        f"{len(names)} of the programs were written in the manner of public repositories before any rule was tried on",
        f"them. {len(alarms)} of them raised a false alarm at first; the rules were then changed until none did:",
        "",
        "| program | what was said at first |",
        "|---|---|",
        *(f"| `{name}` | {what} |" for name, what in alarms.items()),
        "",
        f"In {len(REAL_FAULTS)} others the finding was right, and the program was corrected:",
        "",
        *(f"- `{name}`: {what}." for name, what in sorted(REAL_FAULTS.items())),
        "",
        BY_RUN,
        "",
    ]


def _without_a_fault(detections: Sequence[Detection]) -> list[str]:
    """The rules without a planted fault, so that a reader need not guess which are missing."""
    planted = {detection.code for detection in detections}
    missing = [rule.code for rule in all_rules() if rule.code not in planted]
    if not missing:
        return []
    return [f"No fault is planted here for {', '.join(missing)}; they have their own fixtures in `tests/rules`.", ""]


def _summary(silences: Sequence[Silence], detections: Sequence[Detection]) -> str:
    alarmed = sum(bool(each.alarms) for each in silences)
    found = sum(each.detected for each in detections)
    codes = len({each.code for each in detections})
    return (
        f"**{alarmed} of {len(silences)}** correct but unusual programs raise a false alarm. "
        f"**{found} of {len(detections)}** planted faults, of {codes} rules, are found at their place."
    )


if __name__ == "__main__":
    sys.exit(main())
