"""What a detector says: a finding, how bad it is, how sure it is, and where it is.

Plain data without torch, so that rules, reports and the command line can be imported and tested without it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class Severity(enum.StrEnum):
    """How bad a finding is: `error` is proved wrong, `warning` is likely wrong, `info` is worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 for the worst, so that sorting puts errors first."""
        return list(Severity).index(self)


class Certainty(enum.StrEnum):
    """What a finding rests on: a proof, a statistic held against a threshold, or a rule of thumb."""

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
    """Where a finding is. Every part is optional; `module` is the dotted path, `""` for the root."""

    module: str | None = None
    parameter: str | None = None
    file: str | None = None
    line: int | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault, at one place, with the numbers that show it."""

    code: str
    name: str
    severity: Severity
    certainty: Certainty
    message: str
    location: Location
    evidence: Mapping[str, object]
    fix: str
    url: str
    caused_by: str | None = None
    """The code of the finding that explains this one; None for a root cause."""
    affects: tuple[str, ...] = field(default=(), compare=False)
    """Dotted paths that this fault starves or spoils: a consequence found there is folded under it."""


@dataclass(frozen=True, slots=True)
class Unexamined:
    """A rule that could not be judged, and why, in one sentence."""

    code: str
    why: str
    error: Exception | None = field(default=None, compare=False, repr=False)
    """The exception of an examination that failed by itself, for whoever debugs debugkit; None for any other reason."""


class NotExamined(Exception):  # noqa: N818 - it reports a limit, not an error
    """Raised by a probe, an experiment or a judge that cannot say anything here; the message is one sentence why."""
