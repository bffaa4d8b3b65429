"""The words that a check puts into its sentences: what a name in an f-string can be, read from the syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator

Assigned = dict[str, ast.expr]
Words = dict[str, set[str]]


def placed_words(source: str) -> Iterator[tuple[str, str]]:
    """Each f-string of a module with each text that a name in it is bound to: by a loop, an assignment, a condition."""
    tree = ast.parse(source)
    module = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        words = _bound(function, module)
        for text in (node for node in ast.walk(function) if isinstance(node, ast.JoinedStr)):
            for name in _names(text):
                yield from ((ast.unparse(text), word) for word in sorted(words.get(name, ())))


def _names(text: ast.JoinedStr) -> Iterator[str]:
    """The names in the braces of an f-string, without those between backticks, which are code."""
    before = ""
    for part in text.values:
        if isinstance(part, ast.Constant):
            before = str(part.value)
        elif isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name) and not before.endswith("`"):
            yield part.value.id


def _bound(function: ast.FunctionDef, module: Assigned) -> Words:
    words: Words = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                _bind(target, node.value, module, words)
        elif isinstance(node, (ast.For, ast.comprehension)):
            for value in _items(node.iter, module):
                _bind(node.target, value, module, words)
    return words


def _bind(target: ast.expr, value: ast.expr, module: Assigned, words: Words) -> None:
    if isinstance(target, ast.Name):
        words.setdefault(target.id, set()).update(_texts(value, module))
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, its in zip(target.elts, value.elts, strict=False):
            _bind(one, its, module, words)


def _texts(node: ast.expr, module: Assigned) -> set[str]:
    node = _resolved(node, module)
    if isinstance(node, ast.IfExp):
        return _texts(node.body, module) | _texts(node.orelse, module)
    return {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()


def _items(node: ast.expr, module: Assigned) -> list[ast.expr]:
    """What a loop over a literal, its `items()` or a `zip` of literals goes through."""
    node = _resolved(node, module)
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return list(node.elts)
    if isinstance(node, ast.Dict):
        return [key for key in node.keys if key is not None]
    if not isinstance(node, ast.Call):
        return []
    if isinstance(node.func, ast.Attribute) and node.func.attr == "items":
        table = _resolved(node.func.value, module)
        pairs = zip(table.keys, table.values, strict=True) if isinstance(table, ast.Dict) else ()
        return [ast.Tuple([key, value], ast.Load()) for key, value in pairs if key is not None]
    if ast.unparse(node.func) == "zip":
        return [ast.Tuple(list(row), ast.Load()) for row in _rows([_items(one, module) for one in node.args])]
    return []


def _rows(columns: list[list[ast.expr]]) -> Iterator[tuple[ast.expr, ...]]:
    """The rows of a zip; a column that is no literal has nothing in it."""
    for row in range(max(map(len, columns), default=0)):
        yield tuple(column[row] if row < len(column) else ast.Constant(None) for column in columns)


def _resolved(node: ast.expr, module: Assigned) -> ast.expr:
    return module.get(node.id, node) if isinstance(node, ast.Name) else node
