"""A grade: what was checked, the results, and the exact JSON form.

Both types clean their text when they are made, because it may come from the submission: see `submission_text`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from labs.grading.declarations import Kind
from labs.grading.submission_text import clean, clean_data, shorten

SCHEMA = 1
Verdict = Literal["passed", "failed", "error"]
ResultKind = Literal[Kind, "answer"]
"""A check's kind, or a question of the lab that the learner answers."""
Outcome = Literal["passed", "failed", "error", "not_run"]


@dataclass(frozen=True)
class CheckResult:
    """The result of one check, or of one question. `measured` and `expected` are plain JSON data.

    `raised`: the check failed because the submission's code raised. The JSON does not hold `raised`, `property` and
    `instrument`.
    """

    id: str
    title: str
    kind: ResultKind
    outcome: Outcome
    message: str = ""
    measured: Any = None
    expected: Any = None
    property: str = ""
    instrument: str = ""
    raised: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", clean(self.message))
        object.__setattr__(self, "measured", clean_data(self.measured))
        object.__setattr__(self, "expected", clean_data(self.expected))

    def to_json(self) -> dict[str, Any]:
        """The check's part of the JSON document."""
        return {
            "id": self.id,
            "title": self.title,
            "kind": self.kind,
            "outcome": self.outcome,
            "message": self.message,
            "measured": self.measured,
            "expected": self.expected,
        }


@dataclass(frozen=True)
class Grade:
    """The result of grading one submission of one lab.

    `output` is what the submission printed, cleaned and capped; `evidence` is all measured data, as it came, for the
    recognisers. Neither is in the JSON.
    """

    id: str
    slug: str
    verdict: Verdict
    reason: str | None
    seconds: float
    seed: int
    recognised_wrong_fix: str | None = None
    checks: tuple[CheckResult, ...] = ()
    output: str = ""
    evidence: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.reason is not None:
            object.__setattr__(self, "reason", clean(self.reason))

    @property
    def passed(self) -> bool:
        """True if every expected check ran and passed."""
        return self.verdict == "passed"

    @property
    def failed_checks(self) -> tuple[CheckResult, ...]:
        """The checks that failed, in the order they ran."""
        return tuple(one for one in self.checks if one.outcome == "failed")

    def to_json(self) -> dict[str, Any]:
        """The lab's part of the JSON document."""
        return {
            "id": self.id,
            "slug": self.slug,
            "verdict": self.verdict,
            "reason": self.reason,
            "seconds": round(self.seconds, 3),
            "seed": self.seed,
            "recognised_wrong_fix": self.recognised_wrong_fix,
            "checks": [one.to_json() for one in self.checks],
        }

    def without_timing(self) -> Grade:
        """The grade without what may differ between two equal runs."""
        return replace(self, seconds=0.0, output="", evidence=None)


def plain(value: Any) -> Any:
    """Measured data as JSON data: tensors summarised, non-finite numbers as strings, long values shortened."""
    return _plain(value, _Budget())


MOST_SHOWN = 2000
"""Values and characters of one measurement that a document shows; a submission may return far more."""


class _Budget:
    """How much of one measurement may still be shown."""

    def __init__(self) -> None:
        self.left = MOST_SHOWN

    def text(self, value: str) -> str:
        shown = shorten(value, max(2, self.left))
        self.left -= len(shown)
        return shown


def _plain(value: Any, budget: _Budget) -> Any:
    budget.left -= 1
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return budget.text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for key, item in value.items():
            if budget.left <= 0:
                return {**found, "…": f"{len(value) - len(found)} more"}
            found[budget.text(str(key))] = _plain(item, budget)
        return found
    if isinstance(value, (list, tuple, set, frozenset)):
        items: list[Any] = []
        for item in value:
            if budget.left <= 0:
                return [*items, f"… {len(value) - len(items)} more"]
            items.append(_plain(item, budget))
        return items
    if hasattr(value, "detach") and hasattr(value, "shape"):
        return _tensor(value, budget)
    return budget.text(str(value))


def _tensor(value: Any, budget: _Budget) -> Any:
    if value.numel() == 1 and value.dim() == 0:
        return _plain(value.item(), budget)
    flat = value.detach().reshape(-1)[:8].tolist()
    dtype = str(value.dtype).removeprefix("torch.")
    return {"shape": list(value.shape), "dtype": dtype, "first_values": _plain(flat, budget)}
