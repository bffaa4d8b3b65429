"""A violation: one requirement of `lab dev verify` that a lab does not meet."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """`rule` is the requirement's short name; `sentence` says what is wrong and what to change."""

    rule: str
    sentence: str
