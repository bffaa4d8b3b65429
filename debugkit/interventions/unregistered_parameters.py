"""Parameters that a program trains and that are in no module: in a list, a dict or a closure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import nn

from debugkit._torch_private import REGISTERED
from debugkit.held_values import held_values
from debugkit.setup import TrainingSetup

_DEPTH = 3


def outside_names(setup: TrainingSetup, parameters: Iterable[nn.Parameter]) -> dict[int, tuple[str, int]]:
    """`id(parameter)` → the path of what holds it, and its size; only of those in a container or a closure.

    Parameters of a module that the loss function holds are left out: it may have an optimizer of its own.
    """
    wanted = {id(parameter): parameter for parameter in parameters}
    found: dict[int, tuple[str, int]] = {}
    for path, value in _held(setup):
        for name, parameter in _parameters(value, path, _DEPTH):
            if id(parameter) in wanted:
                found.setdefault(id(parameter), (name, parameter.numel()))
    return found


def _held(setup: TrainingSetup) -> Iterator[tuple[str, Any]]:
    for module, path in setup.module_paths.items():
        for name, value in vars(module).items():
            if name not in REGISTERED and isinstance(value, Mapping | list | tuple):
                yield f"{path}.{name}".lstrip("."), value
    for name, value in held_values(setup.loss_fn):
        if isinstance(value, nn.Parameter | Mapping | list | tuple):
            yield name, value


def _parameters(value: Any, path: str, depth: int) -> Iterator[tuple[str, nn.Parameter]]:
    if isinstance(value, nn.Parameter):
        yield path, value
    elif isinstance(value, nn.Module):
        yield from ((f"{path}.{name}", parameter) for name, parameter in value.named_parameters())
    elif depth and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _parameters(item, f"{path}.{key}", depth - 1)
    elif depth and isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _parameters(item, f"{path}.{index}", depth - 1)
