"""What a lab's Python files import, read without running them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import debugkit
import labs
from labs.authoring.used_definitions import WHOLE, Use, used_by, used_definitions

PACKAGE = Path(labs.__file__).parent
DEBUGKIT = Path(debugkit.__file__).parent
_REGISTRY = "rule.py"
"""The module that imports every rule, by its folder's name."""
_DECLARATIONS = "declare.py"
ALLOWED = ("vla", "grading")
"""Packages of `labs` that a lab may import, beside the modules that labs share, which are next to them."""


def imported_names(path: Path) -> Iterator[str]:
    """The dotted names that a Python file imports; of `from a import b` both `a` and `a.b`. None if it is no Python."""
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def shared_module(name: str, package: Path | None = None) -> Path | None:
    """The file of a module that labs share, from a dotted name such as `labs.invariants.random_batch`."""
    parts = name.split(".")
    path = (package or PACKAGE).joinpath(*parts[1:2]).with_suffix(".py")
    return path if parts[0] == "labs" and len(parts) > 1 and path.is_file() else None


def with_shared_modules(paths: Iterable[Path], package: Path | None = None) -> list[Path]:
    """The files that exist, and the modules shared by labs that they import, directly or through another, in order."""
    waiting = list(paths)
    found: list[Path] = []
    while waiting:
        path = waiting.pop()
        if path in found or not path.is_file():
            continue
        found.append(path)
        shared = (shared_module(name, package) for name in imported_names(path))
        waiting += [module for module in shared if module is not None]
    return sorted(found)


def used_of_debugkit(paths: Iterable[Path], package: Path | None = None) -> dict[Path, str]:
    """The files of debugkit that these files use, directly or through another, with the source of what is used of them.

    A public name, `debugkit.NAME` or `from debugkit import NAME`, counts as that name of its module. Using the registry
    of rules is using all of debugkit. `Declare` does not count: only the detectors read it, and no check.
    """
    package = package or DEBUGKIT

    def resolve(module: str, name: str) -> Use | None:
        if module == "debugkit":
            module = debugkit._HOMES.get(name, module)
        if (path := _file_in_debugkit(f"{module}.{name}", package)) is not None:
            return path, WHOLE
        path = _file_in_debugkit(module, package)
        return None if path is None else (path, name)

    uses = [use for path in paths for node in _nodes(path) for use in used_by(node, resolve)]
    found = used_definitions(uses, resolve)
    if package / _REGISTRY in found:
        found = {path: path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))}
    return {path: source for path, source in found.items() if path != package / _DECLARATIONS}


def _nodes(path: Path) -> Iterator[ast.AST]:
    """The syntax nodes of a Python file. None if it is no Python."""
    try:
        yield from ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    except SyntaxError:
        return


def _file_in_debugkit(name: str, package: Path) -> Path | None:
    first, *parts = name.split(".")
    if first != "debugkit" or not parts:
        return None
    place = package.joinpath(*parts)
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)


def forbidden_imports(path: Path) -> list[str]:
    """What a lab's file must not import: other labs, the command line, the authors' tools."""
    tops = {".".join(name.split(".")[:2]) for name in imported_names(path) if name.startswith("labs.")}
    return sorted(top for top in tops if top.split(".")[1] not in ALLOWED and shared_module(top) is None)
