"""The target of `debugkit check TARGET`: a function, as `package.module:function` or `path/file.py:function`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from debugkit.frames import one_line, raising_line
from debugkit.plain_data import at_line
from debugkit.preflight import check


class TargetError(ValueError):
    """The target cannot be found, raises, or returns an unsupported value. The message gives the reason."""


def arguments_of(target: str) -> dict[str, Any]:
    """The arguments for check() that the function `target` returns. Raises TargetError."""
    place, colon, name = target.rpartition(":")
    if not (colon and place and name):
        raise TargetError(f"{target!r} names no function: write package.module:function or file.py:function.")
    module = _guarded(lambda: _module(place), f"Importing {place}")
    function = getattr(module, name, None)
    if not callable(function):
        raise TargetError(f"{place} has no function {name!r}.")
    return _arguments(_guarded(function, f"{name}()"), name)


def _arguments(made: object, name: str) -> dict[str, Any]:
    if isinstance(made, Mapping):
        known = [
            parameter for parameter in inspect.signature(check).parameters if parameter not in ("select", "ignore")
        ]
        if unknown := [key for key in made if key not in known]:
            raise TargetError(
                f"{name}() returned {unknown[0]!r}, which check() does not take; it takes {', '.join(known)}."
            )
        if "model" not in made:
            raise TargetError(f"{name}() returned a mapping without a model.")
        return dict(made)
    if isinstance(made, tuple) and len(made) == 2:
        return {"model": made[0], "batch": made[1]}
    kind = type(made).__name__
    raise TargetError(f"{name}() must return (model, batch) or a mapping of check()'s arguments, but returned {kind}.")


def _module(place: str) -> ModuleType:
    if not place.endswith(".py"):
        sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(place)
    path = Path(place).resolve()
    if not path.is_file():
        raise TargetError(f"There is no file {place}.")
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{place} cannot be imported.")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module


def _guarded(act: Callable[[], Any], what: str) -> Any:
    """The result of `act`. An exception becomes a TargetError with the line that raised."""
    try:
        return act()
    except TargetError:
        raise
    except Exception as error:
        line = raising_line(error.__traceback__)
        where = at_line(line)
        raise TargetError(f"{what} raised {one_line(error)}{where}.") from error
