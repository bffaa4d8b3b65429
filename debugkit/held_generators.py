"""Random generators outside the global ones: on modules, in a loss function's closure, in the globals of either.

Whoever compares two runs must start both with all of them as they were: a seeded generator that simply draws on is
reproducible from one process to the next, though not from one pass to the next.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import nn

from debugkit.loader_samples import generator_state, put_generator_back
from debugkit.subject import Subject

States = list[tuple[Any, Any]]


def held_generators(subject: Subject) -> States:
    """Each generator that the subject's code holds, with a copy of its state."""
    return [(value, state) for value in _values(subject) if (state := generator_state(value)) is not None]


def put_back(states: States) -> None:
    """Make them draw again as when `held_generators` was called."""
    for generator, state in states:
        put_generator_back(generator, state)


@contextlib.contextmanager
def held_generators_restored(subject: Subject) -> Iterator[None]:
    """Put every held generator back on exit, so that the next run draws the same."""
    states = held_generators(subject)
    try:
        yield
    finally:
        put_back(states)


def _values(subject: Subject) -> list[Any]:
    functions = [subject.loss_fn, *(getattr(type(module), "forward", None) for module in subject.model.modules())]
    values: list[Any] = [value for module in subject.model.modules() for value in vars(module).values()]
    for function in functions:
        values += getattr(function, "__globals__", {}).values()
        for cell in getattr(function, "__closure__", None) or ():
            with contextlib.suppress(ValueError):  # a cell that is not filled yet
                values.append(cell.cell_contents)
    inside = [held for value in values if _is_plain_object(value) for held in list(vars(value).values())]
    return list({id(value): value for value in (*values, *inside)}.values())


def _is_plain_object(value: Any) -> bool:
    """A noise scheduler, say, that a policy holds; no module, class or library."""
    kind = type(value)
    return hasattr(value, "__dict__") and kind.__module__ != "builtins" and not isinstance(value, nn.Module | type)
