"""The definitions of debugkit that a lab's files use, so that a change of others does not make its records stale."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import debugkit
from labs.authoring.imports import nodes_of

DEBUGKIT = Path(debugkit.__file__).parent
_REGISTRY = "rule.py"
"""The module that imports every rule, by its folder's name."""
_DECLARATIONS = "declare.py"
WHOLE = "*"
"""In place of a name: the whole module is used."""

Use = tuple[Path, str]
"""A module of the package, and the name that is used of it, or `WHOLE`."""
Resolve = Callable[[str, str], Use | None]
"""What is used where `name` is imported from `module`, or `WHOLE` of it; None outside the package."""


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

    uses = [use for path in paths for node in nodes_of(path) for use in used_by(node, resolve)]
    found = used_definitions(uses, resolve)
    if package / _REGISTRY in found:
        found = {path: path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))}
    return {path: source for path, source in found.items() if path != package / _DECLARATIONS}


def used_definitions(uses: Iterable[Use], resolve: Resolve, *, split_imports: bool = False) -> dict[Path, str]:
    """For each module that is used, directly or through another, the source of what is used of it.

    These are the top-level statements that define the names, those that these refer to, and those that run when the
    module is imported and define nothing. With `split_imports` an import of several names counts as one of each.
    """
    modules: dict[Path, _Module] = {}
    waiting = list(uses)
    seen: set[Use] = set()
    while waiting:
        use = waiting.pop()
        if use in seen:
            continue
        seen.add(use)
        path, name = use
        if path not in modules:
            modules[path] = _Module(path, split_imports)
        for statement in modules[path].include(name):
            waiting += (use for node in ast.walk(statement) for use in used_by(node, resolve))
    return {path: module.source() for path, module in sorted(modules.items())}


class _Module:
    """The statements of a module, and which of them are included so far."""

    def __init__(self, path: Path, split_imports: bool) -> None:
        body = ast.parse(path.read_text(encoding="utf-8")).body
        self._body = [part for one in body for part in _split(one)] if split_imports else body
        self._defining: dict[str, list[int]] = {}
        for number, statement in enumerate(self._body):
            for name in _defined(statement):
                self._defining.setdefault(name, []).append(number)
        self._always = [number for number, statement in enumerate(self._body) if not any(_defined(statement))]
        self._included: set[int] = set()

    def include(self, name: str) -> list[ast.stmt]:
        """Include what defines a name, and what that needs; returns the statements that are new."""
        waiting = [*self._always]
        waiting += range(len(self._body)) if name == WHOLE else self._defining.get(name, [])
        new = []
        while waiting:
            number = waiting.pop()
            if number in self._included:
                continue
            self._included.add(number)
            statement = self._body[number]
            new.append(statement)
            for node in ast.walk(statement):
                if isinstance(node, ast.Name):
                    waiting += self._defining.get(node.id, [])
        return new

    def source(self) -> str:
        """The included statements in their order."""
        chosen = [statement for number, statement in enumerate(self._body) if number in self._included]
        return ast.unparse(ast.Module(body=chosen, type_ignores=[]))


def _split(statement: ast.stmt) -> list[ast.stmt]:
    """An import of several names as several imports."""
    if isinstance(statement, ast.ImportFrom):
        return [ast.ImportFrom(statement.module, [alias], statement.level) for alias in statement.names]
    if isinstance(statement, ast.Import):
        return [ast.Import([alias]) for alias in statement.names]
    return [statement]


def _defined(statement: ast.stmt) -> Iterator[str]:
    """The names that a top-level statement defines; those inside `if` and `try`, too."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        yield from ((alias.asname or alias.name).partition(".")[0] for alias in statement.names)
    elif isinstance(statement, ast.If | ast.Try):
        for inner in ast.iter_child_nodes(statement):
            if isinstance(inner, ast.stmt):
                yield from _defined(inner)
    else:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def used_by(node: ast.AST, resolve: Resolve) -> Iterator[Use]:
    """What one node imports, or uses as `debugkit.NAME`."""
    found: list[Use | None] = []
    if isinstance(node, ast.Import):
        found = [resolve(alias.name, WHOLE) for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
        found = [resolve(node.module, alias.name) for alias in node.names]
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "debugkit":
        found = [resolve("debugkit", node.attr)]
    yield from (use for use in found if use is not None)


def _file_in_debugkit(name: str, package: Path) -> Path | None:
    first, *parts = name.split(".")
    if first != "debugkit" or not parts:
        return None
    place = package.joinpath(*parts)
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)
