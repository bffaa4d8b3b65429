"""What a lab's Python files import, read without running them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import labs

PACKAGE = Path(labs.__file__).parent
ALLOWED = ("vla", "grading")
"""Packages of `labs` that a lab may import, beside the modules that labs share, which are next to them."""


def imported_names(path: Path) -> Iterator[str]:
    """The dotted names that a Python file imports; of `from a import b` both `a` and `a.b`. None if it is no Python."""
    for node in nodes_of(path):
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


def nodes_of(path: Path) -> Iterator[ast.AST]:
    """The syntax nodes of a Python file. None if it is no Python."""
    try:
        yield from ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    except SyntaxError:
        return


def forbidden_imports(path: Path) -> list[str]:
    """What a lab's file must not import: other labs, the command line, the authors' tools."""
    tops = {".".join(name.split(".")[:2]) for name in imported_names(path) if name.startswith("labs.")}
    return sorted(top for top in tops if top.split(".")[1] not in ALLOWED and shared_module(top) is None)
