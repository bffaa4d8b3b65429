"""What a fault is, and the registry of all of them.

A fault is a function that edits one of the correct programs, decorated with `@fault(code, of=program)`. The finding
must name the line that ends in `# DKNNN`, where the function has one, and the `module`, the `parameter` or the part of
the message that the decorator gives. Nothing else may be found at `error` or `warning`, but for consequences folded
under the finding and the codes in `also`.
"""

from __future__ import annotations

import importlib
import inspect
import linecache
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from debugkit.finding import Finding, Severity
from debugkit.report import Report
from healthy.program import Program, built

Plant = Callable[[Program], None]


@dataclass(frozen=True)
class Fault:
    """One edit of a correct program and what must be found of it."""

    name: str
    code: str
    of: str
    plant: Plant
    by: Literal["check", "watch"]
    module: str | None
    parameter: str | None
    says: str
    also: tuple[str, ...]

    def report(self) -> Report:
        """Build the correct program, plant the fault, examine."""
        program = self.planted()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of some faults by itself
            return program.check() if self.by == "check" else program.watch()

    def is_named_by_run(self) -> bool:
        """Whether `debugkit run` has a finding of its code, which is given no model, batch or loss."""
        program = self.planted()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return self.code in program.run().by_code
            except Exception:  # a fault that stops the loop
                return False

    def planted(self) -> Program:
        """The correct program with the fault."""
        program = built(self.of)
        self.plant(program)
        return program

    def marked(self) -> set[int]:
        """The lines of the fault's function that end in its code."""
        lines, first = inspect.getsourcelines(self.plant)
        return {number for number, line in enumerate(lines, first) if line.rstrip().endswith(f"# {self.code}")}

    def is_placed(self, finding: Finding) -> bool:
        """Whether the finding names the place."""
        place, marked = finding.location, self.marked()
        own = place.file == inspect.getsourcefile(self.plant)
        return (
            (not marked or (own and place.line in marked))
            and (self.module is None or place.module == self.module)
            and (self.parameter is None or place.parameter == self.parameter)
            and self.says in finding.message
        )


@dataclass(frozen=True)
class Verdict:
    """What became of one fault."""

    fault: Fault
    placed: tuple[Finding, ...]
    misplaced: tuple[Finding, ...]
    others: tuple[Finding, ...]
    """Errors and warnings of other codes that are not folded under this one."""
    why_not: str

    @property
    def detected(self) -> bool:
        """With the right code, at the right place, and nothing else beside it."""
        return bool(self.placed) and not self.misplaced and not self.others

    def __str__(self) -> str:
        shown = [f"{f.code} at {_place(f)}: {f.message}" for f in (*self.misplaced, *self.others)]
        return f"{self.fault.code} {self.fault.name}: " + (
            "; beside it or elsewhere: ".join(["found" if self.placed else "not found at its place", *shown])
            + (f" (not examined: {self.why_not})" if self.why_not else "")
        )


FAULTS: dict[str, Fault] = {}


def fault(
    code: str,
    *,
    of: str,
    by: Literal["check", "watch"] = "check",
    module: str | None = None,
    parameter: str | None = None,
    says: str = "",
    also: tuple[str, ...] = (),
) -> Callable[[Plant], Plant]:
    """Register a fault under its function's name. Raises ValueError for one that does not state its place."""

    def register(plant: Plant) -> Plant:
        new = Fault(plant.__name__, code, of, plant, by, module, parameter, says, also)
        if new.name in FAULTS:
            raise ValueError(f"There are two faults named {new.name}.")
        if module is None and parameter is None and not says and not new.marked():
            raise ValueError(f"{new.name} must say where it is: a marked line, module=, parameter= or says=.")
        FAULTS[new.name] = new
        return plant

    return register


_NO_TOPIC = ("__init__", "conftest", "fault", "first_attempts", "measure")


def all_faults() -> dict[str, Fault]:
    """Every fault by its name, from every file of this folder."""
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if not path.stem.startswith("test_") and path.stem not in (
            "__init__",
            "conftest",
            "fault",
            "first_attempts",
            "measure",
        ):
            importlib.import_module(f"faults.{path.stem}")
    return dict(FAULTS)


def examine(planted: Fault) -> Verdict:
    """Look for a fault."""
    linecache.checkcache()
    report = planted.report()
    for entry in report.not_examined:
        if entry.error is not None and entry.why.startswith("The rule itself failed"):
            raise entry.error
    found = report.by_code.get(planted.code, ())
    return Verdict(
        fault=planted,
        placed=tuple(finding for finding in found if planted.is_placed(finding)),
        misplaced=tuple(finding for finding in found if not planted.is_placed(finding)),
        others=tuple(
            finding
            for finding in report.findings
            if finding.severity is not Severity.INFO
            and finding.caused_by is None
            and finding.code not in (planted.code, *planted.also)
        ),
        why_not=next((entry.why for entry in report.not_examined if entry.code == planted.code), ""),
    )


def _place(finding: Finding) -> str:
    place = finding.location
    line = f"{Path(place.file).name}:{place.line}" if place.file else ""
    return " ".join(part for part in (place.module, place.parameter, line) if part) or "no place"
