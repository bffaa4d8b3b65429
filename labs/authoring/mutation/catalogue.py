"""The catalogue: every operator, with its name and a sentence. Importing the families in `operators/` fills it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from labs.authoring.mutation import operators
from labs.authoring.mutation.edit import Edit
from labs.authoring.mutation.operators import FAMILIES

Language = Literal["python", "yaml"]
Make = Callable[[Any], Iterator[Edit]]


@dataclass(frozen=True)
class Operator:
    """One kind of change. `make` yields every edit of that kind in a parsed file."""

    name: str
    sentence: str
    make: Make
    language: Language = "python"


class UnknownOperatorError(Exception):
    """There is no operator of that name; the message lists those that exist."""


_operators: dict[str, Operator] = {}


def operator(name: str, sentence: str, *, language: Language = "python") -> Callable[[Make], Make]:
    """Register a function that takes a `PythonSource` or a `YamlSource` and yields edits."""

    def register(make: Make) -> Make:
        if name in _operators:
            raise ValueError(f"There are two operators named {name}.")
        _operators[name] = Operator(name, sentence, make, language)
        return make

    return register


def all_operators() -> tuple[Operator, ...]:
    """The whole catalogue, in the order of registration: of two equal mutants the first one is kept."""
    for family in FAMILIES:
        importlib.import_module(f"{operators.__name__}.{family}")
    return tuple(_operators.values())


def named(name: str) -> Operator:
    """The operator of that name. Raises UnknownOperatorError."""
    for one in all_operators():
        if one.name == name:
            return one
    there = ", ".join(one.name for one in all_operators())
    raise UnknownOperatorError(f"There is no operator {name}. There are: {there}.")
