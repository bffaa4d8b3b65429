"""Chooses a program and a fault from a seed, plants it, and checks by measurement that it is a fair mystery.

`drawn` is pure text and gives the same on every machine. `plant` measures: of the draws of a seed it takes the first
whose fault is seen by its aspect, on two different inputs, and that is healthy without it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from labs.grading.catalog import CHAPTERS
from labs.grading.errors import UsageError
from labs.mystery.compose import Program, compose
from labs.mystery.operators import OPERATORS, Operator

DRAWS = 800
"""Draws of one seed; if none is fair, there is no mystery of that seed."""
_OF_AN_OPERATOR = 20
"""Draws in which the same faults are tried in other programs."""
CLEARLY = 5.0
"""A fault must be seen at this multiple of the tolerance, so that rounding does not hide it."""
LEVELS = (1, 2, 3)
_NAME = re.compile(r"mystery-(?P<seed>[0-9]{1,12})(-level(?P<level>[123]))?(-(?P<chapter>[a-z]+))?")


@dataclass(frozen=True)
class Key:
    """What a mystery is asked for by. The same key gives the same mystery."""

    seed: int
    level: int | None = None
    chapter: str | None = None

    @property
    def name(self) -> str:
        """The mystery's id, and the name of its folder: `mystery-20261123`, `mystery-7-level2-loop`."""
        parts = [f"mystery-{self.seed}"]
        parts += [f"level{self.level}"] if self.level is not None else []
        return "-".join(parts + ([self.chapter] if self.chapter is not None else []))

    @property
    def actual_level(self) -> int:
        """The level; drawn from the seed if it was not asked for."""
        return self.level or Random(f"level of {self.seed}").choice((1, 2, 2, 3))

    @classmethod
    def of_name(cls, name: str) -> Key | None:
        """The key of a mystery's id; None if it is not one."""
        found = _NAME.fullmatch(name)
        if found is None or found["chapter"] not in (None, *CHAPTERS):
            return None
        return cls(int(found["seed"]), int(found["level"]) if found["level"] else None, found["chapter"])


@dataclass(frozen=True)
class Planted:
    """A healthy program with one fault or two."""

    key: Key
    attempt: int
    program: Program
    operators: tuple[Operator, ...]
    files: Mapping[str, str]
    """The learner's files, with the faults."""

    @property
    def digest(self) -> str:
        """Changes when another release makes another program of the same seed."""
        text = "\0".join(f"{name}\0{self.files[name]}\0{self.program.files[name]}" for name in sorted(self.files))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class NoMysteryError(UsageError):
    """No draw of this seed is fair; the message says what to ask for instead."""


def operators_for(level: int, chapter: str | None) -> tuple[Operator, ...]:
    """The operators that a level and a chapter allow. The two faults of level 3 are silent ones."""
    found = [one for one in OPERATORS if one.level == min(level, 2)]
    return tuple(one for one in found if chapter in (None, one.chapter))


def drawn(key: Key, attempt: int) -> Planted | None:
    """One draw of a seed; None if the program has no place for the fault. Only text: nothing is run."""
    faults = Random(f"faults {key.name} {attempt // _OF_AN_OPERATOR}")
    allowed = list(operators_for(key.actual_level, key.chapter))
    operators = tuple(faults.sample(allowed, 2 if key.actual_level == 3 else 1))
    program = compose(Random(f"program {key.name} {attempt}"))
    files = _with_faults(program, operators)
    return None if files is None else Planted(key, attempt, program, operators, files)


def plant(key: Key) -> Planted:
    """The mystery of a key: the first fair draw. Takes about a second of CPU time. Raises NoMysteryError."""
    for attempt in range(DRAWS):
        planted = drawn(key, attempt)
        if planted is not None and not problems(planted):
            return planted
    raise NoMysteryError(f"Seed {key.seed} gives no mystery of this level and chapter. Choose another seed.")


def problems(planted: Planted) -> list[str]:
    """Why a draw is not fair; empty if it is."""
    from labs.mystery.aspects import ASPECTS, BY_ID
    from labs.mystery.healthy import Running

    program, wanted = planted.program, [BY_ID[one.shows] for one in planted.operators]
    healthy, faulty = Running(program), Running(program, planted.files)
    for stream in ("first", "second"):
        seen = failing(healthy, faulty, wanted, f"{planted.key.name} {stream}", CLEARLY)
        unseen = [one.id for one in wanted if one.id not in seen]
        if unseen:
            return [f"the fault is not seen by {', '.join(unseen)}"]
    hidden = _hidden_by_the_other(planted, healthy) if len(planted.operators) > 1 else []
    if hidden:
        return hidden
    # The most expensive question comes last: few draws get here, and nearly all of them are fair.
    again = failing(healthy, Running(program), ASPECTS, f"{planted.key.name} healthy", 1.0)
    return [f"the healthy program fails {', '.join(again)}"] if again else []


def failing(healthy: Any, other: Any, aspects: Iterable[Any], stream: str, factor: float) -> dict[str, str]:
    """The aspects in which a program differs from the healthy one by a multiple of the tolerance, and how."""
    from labs.grading.difference import difference
    from labs.grading.rng import Rng

    found: dict[str, str] = {}
    for aspect in aspects:
        rng = Rng("mystery", stream, aspect.id)
        facts = healthy.facts(rng)
        inputs = aspect.inputs(rng, facts)
        reference = healthy.measure(aspect, inputs)
        try:
            measured = other.measure(aspect, inputs)
        except Exception as error:
            found[aspect.id] = f"raises {type(error).__name__}"
            continue
        relative, absolute = aspect.tolerance(facts)
        fault = difference(measured, reference, rtol=factor * relative, atol=factor * absolute)
        if fault is not None:
            found[aspect.id] = fault
    return found


def _hidden_by_the_other(planted: Planted, healthy: Any) -> list[str]:
    """With either fault undone, the other must still be seen."""
    from labs.mystery.aspects import BY_ID
    from labs.mystery.healthy import Running

    found = []
    for one in planted.operators:
        files = one.planted(planted.program, planted.program.files)
        assert files is not None
        alone = failing(healthy, Running(planted.program, files), [BY_ID[one.shows]], planted.key.name, CLEARLY)
        found += [] if alone else [f"{one.id} alone is not seen by {one.shows}"]
    return found


def _with_faults(program: Program, operators: Sequence[Operator]) -> dict[str, str] | None:
    files: dict[str, str] | None = dict(program.files)
    for one in operators:
        files = one.planted(program, files) if files is not None else None
        if one.planted(program, program.files) is None:
            return None
    return files
