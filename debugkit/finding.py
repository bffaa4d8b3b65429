"""The result of a detector: a finding, its severity, its certainty and its location.

Plain data without torch, so that rules, reports and the command line can be imported and tested without it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace

from debugkit.json_values import json_value


class Severity(enum.StrEnum):
    """The severity of a finding: `error` is certainly wrong, `warning` is probably wrong, `info` is for information."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 for errors, so that they sort first."""
        return list(Severity).index(self)


class Certainty(enum.StrEnum):
    """The basis of a finding: a proof, a statistic compared with a threshold, or a heuristic."""

    PROOF = "proof"
    STATISTICAL = "statistical"
    HEURISTIC = "heuristic"


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the user's program: absolute path, 1-based line, and the function it is in."""

    file: str
    line: int
    function: str = ""


@dataclass(frozen=True, slots=True)
class Location:
    """Where a finding is. Every part is optional.

    `module` and `parameter` are dotted paths, `""` for the root module, and `parameter` is the first of several; `file`
    is an absolute path and `line` counts from 1; `step` is the training step, counted from 0; `input` is the dotted
    path of an entry of the batch.
    """

    module: str | None = None
    parameter: str | None = None
    file: str | None = None
    line: int | None = None
    step: int | None = None
    input: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """One fault at one location, with the measured numbers.

    Two findings are equal if their JSON is equal. So NaN in the evidence equals NaN, and a tuple equals a list.
    """

    code: str
    """The rule's code, `DK002`."""
    name: str
    """The rule's name, `silent-broadcast`."""
    severity: Severity
    certainty: Certainty
    message: str
    """One sentence that describes the fault, with its number."""
    location: Location
    evidence: Mapping[str, object]
    """The measured values and the threshold they were compared with."""
    fix: str
    """What to change."""
    url: str
    """The URL of the rule's page."""
    caused_by: str | None = None
    """The code of the finding that causes this one. None for a root cause."""
    affects: tuple[str, ...] = ()
    """Dotted paths that this fault affects. Consequences found there are folded under it."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Finding):
            return NotImplemented
        return all(
            json_value(getattr(self, each.name)) == json_value(getattr(other, each.name)) for each in fields(self)
        )

    def __hash__(self) -> int:
        return hash((self.code, self.message, self.location))


def renamed(finding: Finding, name_of: Callable[[str], str]) -> Finding:
    """The finding with other paths of modules and parameters."""
    here = finding.location
    module, parameter = (path and name_of(path) for path in (here.module, here.parameter))
    affects = tuple(map(name_of, finding.affects))
    return replace(finding, location=replace(here, module=module, parameter=parameter), affects=affects)


@dataclass(frozen=True, slots=True)
class Unexamined:
    """A rule that could not be examined, and the reason in one sentence."""

    code: str
    why: str
    error: Exception | None = field(default=None, compare=False, repr=False)
    """The exception, if the examination failed because of a bug in debugkit; otherwise None. Not in JSON."""


class NotExamined(Exception):  # noqa: N818 - it reports a limit, not an error
    """Raised if something cannot be measured or judged. The message gives the reason in one sentence.

    Instruments raise it to the caller. `check()` and `watch()` report the rule as not examined.
    """
