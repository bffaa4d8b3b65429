"""What a function holds besides its arguments: closure cells, defaults, bound objects, and the globals it names."""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from debugkit.frames import is_users

_DEPTH = 4


def held_values(function: Callable[..., Any] | None) -> Iterator[tuple[str, Any]]:
    """Each value by its name, also those of functions among them. Modules of Python and classes are left out."""
    seen: set[int] = set()
    yield from _values(function, seen, _DEPTH)


def held_modules(function: Callable[..., Any] | None) -> dict[str, nn.Module]:
    """The neural network modules that a function holds by themselves or on a plain object, by name."""
    found: dict[str, nn.Module] = {}
    for name, value in held_values(function):
        for path, item in ((name, value), *((f"{name}.{key}", inner) for key, inner in attributes_of(value).items())):
            if isinstance(item, nn.Module) and all(item is not known for known in found.values()):
                found[path] = item
    return found


def attributes_of(value: Any) -> dict[str, Any]:
    """The attributes of a plain object, such as a scheduler written by hand; empty for any other value."""
    kind = type(value)
    plain = not isinstance(value, nn.Module | type | types.ModuleType | types.FunctionType)
    own = kind.__module__.partition(".")[0] not in ("builtins", "torch", "numpy", "types", "functools")
    return dict(vars(value)) if plain and own and hasattr(value, "__dict__") else {}


def cells_of(function: Callable[..., Any] | None) -> Iterator[types.CellType]:
    """The closure cells of a function and of the functions that it holds."""
    for value in (function, *(held for _, held in held_values(function) if _is_users_function(held))):
        yield from getattr(_plain(value), "__closure__", None) or ()


def _values(function: Any, seen: set[int], depth: int) -> Iterator[tuple[str, Any]]:
    for name, value in _own_values(function):
        if id(value) in seen or isinstance(value, types.ModuleType | type):
            continue
        seen.add(id(value))
        yield name, value
        if depth and (isinstance(value, functools.partial) or _is_users_function(value)):
            yield from _values(value, seen, depth - 1)


def _own_values(function: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(function, functools.partial):
        yield from ((str(index), value) for index, value in enumerate(function.args))
        yield from function.keywords.items()
        yield "func", function.func
    plain = _plain(function)
    bound = getattr(function, "__self__", None if isinstance(function, types.FunctionType) else function)
    if bound is not None and not isinstance(function, functools.partial | types.BuiltinFunctionType):
        yield type(bound).__name__, bound
    code = getattr(plain, "__code__", None)
    if code is None:
        return
    for name, cell in zip(code.co_freevars, plain.__closure__ or (), strict=False):
        with contextlib.suppress(ValueError):  # a cell without a value yet
            yield name, cell.cell_contents
    yield from zip(inspect.getfullargspec(plain).args[::-1], (plain.__defaults__ or ())[::-1], strict=False)
    yield from (plain.__kwdefaults__ or {}).items()
    yield from ((name, plain.__globals__[name]) for name in code.co_names if name in plain.__globals__)


def _plain(function: Any) -> Any:
    """The Python function of a method, or of an object that is called."""
    if isinstance(function, types.FunctionType):
        return function
    return getattr(function, "__func__", None) or vars(type(function)).get("__call__")


def _is_users_function(value: Any) -> bool:
    code = (
        getattr(_plain(value), "__code__", None) if isinstance(value, types.FunctionType | types.MethodType) else None
    )
    return code is not None and is_users(code.co_filename)
