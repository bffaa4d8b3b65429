"""The names that a program's code mentions: what it never mentions, no batch can make it use."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

from torch import nn

from debugkit.held_values import held_values
from debugkit.setup import TrainingSetup

_BUILDS = ("__init__", "init", "_init", "reset", "_reset", "build", "load", "_load", "state_dict", "configure")
"""How the names of methods begin that make, restore or list modules and do not run them."""


def mentions(setup: TrainingSetup, path: str) -> bool:
    """Whether code that may run in a step mentions the module at `path` by its attribute.

    That is the code of its owner, of the modules around that, and of the loss function.
    """
    parts = path.split(".")
    names = {part for part in parts if not part.isdigit()}
    owners = [setup.model.get_submodule(".".join(parts[:depth])) for depth in range(len(parts))]
    last = next((part for part in reversed(parts) if not part.isdigit()), "")
    return bool(names) and last in set(_names(setup, owners))


def chosen_by_key(setup: TrainingSetup) -> tuple[str, ...]:
    """Paths of the `ModuleDict`s of which no code reads an entry as an attribute: their entries are alternatives."""
    everything = set(_names(setup, setup.model.modules(), strings=False))
    named = setup.named_modules
    return tuple(path for path, m in named if isinstance(m, nn.ModuleDict) and not everything & set(m.keys()))


def _names(setup: TrainingSetup, modules: Any, strings: bool = True) -> Iterator[str]:
    for kind in {kind: None for module in modules for kind in type(module).__mro__}:
        if kind.__module__.partition(".")[0] not in ("torch", "builtins"):
            for name, method in vars(kind).items():
                if not name.startswith(_BUILDS):
                    yield from _names_in(getattr(getattr(method, "__func__", method), "__code__", None), strings)
    for function in (setup.loss_fn, *(value for _, value in held_values(setup.loss_fn))):
        yield from _names_in(getattr(getattr(function, "__func__", function), "__code__", None), strings)


def _names_in(code: Any, strings: bool) -> Iterator[str]:
    """The attributes and globals that a function names, and with `strings` its literals: `getattr(self, "head")`."""
    if isinstance(code, types.CodeType):
        yield from code.co_names
        for constant in code.co_consts:
            if strings and isinstance(constant, str):
                yield constant
            yield from _names_in(constant, strings)
