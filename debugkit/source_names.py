"""The words of the names in expressions of the program, such as `val` and `acc` in `metrics["val_acc"].item()`."""

from __future__ import annotations

import ast
import functools
import linecache
import re

_KEEPS_MEANING = frozenset({"float", "item", "mean", "fmean", "cpu", "detach", "tolist", "numpy", "compute", "sum"})


def tree_of(file: str) -> ast.Module:
    """The parsed source of a file; empty if it cannot be read."""
    return _parsed("".join(linecache.getlines(file)))


@functools.lru_cache(maxsize=16)
def _parsed(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def methods_called(tree: ast.AST, method: str, line: int) -> list[ast.Call]:
    """The calls `….method(…)` with arguments that contain a line."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == method
        and node.lineno <= line <= (node.end_lineno or node.lineno)
        and (node.args or node.keywords)
    ]


def words_of(expression: ast.expr) -> frozenset[str]:
    """The words of the name that an expression reads, in lower case; none if it may change what the name says.

    >>> sorted(words_of(ast.parse("metrics['val_acc'].item() / 8", mode="eval").body))
    ['acc', 'val']
    >>> words_of(ast.parse("1 - val_acc", mode="eval").body)
    frozenset()
    """
    return frozenset(word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", _name(expression)))


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
        case ast.Subscript(value=held):
            return _name(held)
        case ast.BinOp(left=divided, op=ast.Div()):
            return _name(divided)
        case ast.Call(func=ast.Attribute(attr=method, value=held), args=[]) if method in _KEEPS_MEANING:
            return _name(held)
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=[held]) if name in _KEEPS_MEANING:
            return _name(held)
    return ""
