"""Random generators other than the global ones: on modules, in the closure of a loss function, in the globals of both.

To compare two runs, all of them must be in the same state at the start of both. A seeded generator that is not reset is
reproducible from process to process, but not from pass to pass.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import nn

from debugkit.loader_samples import generator_state, put_generator_back
from debugkit.setup import TrainingSetup

States = list[tuple[Any, Any]]


def held_generators(setup: TrainingSetup) -> States:
    """Each generator that the setup's code holds, with a copy of its state."""
    return [(value, state) for value in _values(setup) if (state := generator_state(value)) is not None]


def put_back(states: States) -> None:
    """Restore the states that `held_generators` has copied."""
    for generator, state in states:
        put_generator_back(generator, state)


@contextlib.contextmanager
def held_generators_restored(setup: TrainingSetup) -> Iterator[None]:
    """Restore every held generator on exit, so that the next run draws the same numbers."""
    states = held_generators(setup)
    try:
        yield
    finally:
        put_back(states)


def _values(setup: TrainingSetup) -> list[Any]:
    functions = [setup.loss_fn, *(getattr(type(module), "forward", None) for module in setup.model.modules())]
    values: list[Any] = [value for module in setup.model.modules() for value in vars(module).values()]
    for function in functions:
        values += getattr(function, "__globals__", {}).values()
        for cell in getattr(function, "__closure__", None) or ():
            with contextlib.suppress(ValueError):  # a cell without a value yet
                values.append(cell.cell_contents)
    inside = [held for value in values if _is_plain_object(value) for held in list(vars(value).values())]
    return list({id(value): value for value in (*values, *inside)}.values())


def _is_plain_object(value: Any) -> bool:
    """Whether a value is an object such as a policy's noise scheduler, and no module, class or built-in type."""
    kind = type(value)
    return hasattr(value, "__dict__") and kind.__module__ != "builtins" and not isinstance(value, nn.Module | type)
