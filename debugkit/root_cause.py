"""Fold findings by root cause: a consequence is listed under the finding that explains it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from debugkit.finding import Finding
from debugkit.rule import find_rule


def fold(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings, most severe first. Each consequence follows its cause and has `caused_by` set.

    A finding is a consequence of another if its rule declares this in `consequence_of`, the other does not come from a
    later step, and the other covers its location. Chains are followed to the first cause.
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
    """Whether the cause's scope (`affects`, else its module) covers the finding's location. No location matches all."""
    reach = cause.affects or ((cause.location.module,) if cause.location.module else ())
    several = len(finding.affects) > 1 and finding.location.module is not None
    place = finding.location.module if several else finding.location.parameter or finding.location.module
    return not reach or not place or any(_within(place, part) or _within(part, place) for part in reach)


def _within(path: str, ancestor: str) -> bool:
    return path == ancestor or path.startswith(f"{ancestor}.")
