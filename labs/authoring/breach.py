"""A breach: one thing the collection's law asks of a lab that does not hold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Breach:
    """`law` is its short name, `sentence` says what is wrong and what to do."""

    law: str
    sentence: str
