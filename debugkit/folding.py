"""One finding per root cause: consequences are put under the finding that explains them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from debugkit.finding import Finding
from debugkit.registry import find_rule


def fold(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings, worst first, each consequence right after its cause and with `caused_by` set.

    A finding is a consequence of another if its rule says so (`consequence_of`), the other does not come from a later
    step, and the other covers its place. Chains end at the first cause.
    """
    ordered = sorted(findings, key=lambda finding: (finding.severity.rank, finding.code))
    causes = {id(finding): _cause(finding, ordered) for finding in ordered}
    result: list[Finding] = []
    for root in ordered:
        if causes[id(root)] is None:
            result.append(root)
            result.extend(
                replace(finding, caused_by=root.code)
                for finding in ordered
                if finding is not root and _root(finding, causes) is root
            )
    return tuple(result)


def _root(finding: Finding, causes: dict[int, Finding | None]) -> Finding:
    cause = causes[id(finding)]
    return finding if cause is None else _root(cause, causes)


def _cause(finding: Finding, others: list[Finding]) -> Finding | None:
    """The first declared cause that covers the finding."""
    for code in find_rule(finding.code).consequence_of:
        for other in others:
            if other.code == code and other is not finding and _not_later(other, finding) and covers(other, finding):
                return other
    return None


def _not_later(cause: Finding, finding: Finding) -> bool:
    return cause.location.step is None or finding.location.step is None or cause.location.step <= finding.location.step


def covers(cause: Finding, finding: Finding) -> bool:
    """Whether the cause's reach (`affects`, else its module) includes the finding's place; no place is everywhere."""
    reach = cause.affects or ((cause.location.module,) if cause.location.module else ())
    place = finding.location.parameter or finding.location.module
    return not reach or not place or any(_within(place, part) or _within(part, place) for part in reach)


def _within(path: str, ancestor: str) -> bool:
    return path == ancestor or path.startswith(f"{ancestor}.")
