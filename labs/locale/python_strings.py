"""The English sentences in a Python file, read from its syntax tree: an f-string becomes a template."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

_MOST_VARIANTS = 16
_PROSE = re.compile(r"[A-Za-z][a-z]*[.:;,?!]?\s+\S|\s[a-z]+\b")
_CODE = re.compile(r"^[\w.]+\(.*\)$|^[-\w./:=*\[\] ]*[/=<>\[\]|\\][-\w./:=*\[\] ]*$")


@dataclass(frozen=True)
class Found:
    """One text, whether it is a template, and the line where it begins."""

    text: str
    is_template: bool
    line: int


def strings_in(source: str) -> Iterator[Found]:
    """Every text of at least two words that is not a docstring."""
    tree = ast.parse(source)
    skipped = _docstrings(tree)
    for node in _outermost(tree):
        if id(node) in skipped:
            continue
        for text, is_template in variants(node):
            fixed = re.sub(r"\{\w*\}", "", text) if is_template else text
            if _is_prose(fixed):
                named = _named(text)
                yield Found(named, is_template or named != text, node.lineno)


def called(source: str, names: set[str], position: int = 0) -> Iterator[Found]:
    """The text that is the argument at `position` of each call of a function with one of these names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and _name(node.func) in names and len(node.args) > position:
            for text, is_template in variants(node.args[position]):
                yield Found(text, is_template, node.lineno)


def raised(source: str) -> Iterator[Found]:
    """The text of each exception that is raised."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            for text, is_template in variants(node.exc.args[0]):
                if " " in text:
                    yield Found(text, is_template, node.lineno)


def variants(node: ast.expr) -> list[tuple[str, bool]]:
    """The texts that an expression makes, and whether each is a template; none for an expression without a text.

    A condition between two texts makes two.
    """
    pieces = _pieces(node)
    if pieces is None:
        return []
    found = []
    for chosen in itertools.islice(itertools.product(*pieces), _MOST_VARIANTS):
        is_template = any(isinstance(one, ast.expr) for one in chosen)
        names: dict[str, int] = {}
        parts = [
            _placeholder(one, names) if isinstance(one, ast.expr) else _literal(one, is_template) for one in chosen
        ]
        found.append(("".join(parts), is_template))
    return list(dict.fromkeys(found))


Piece = str | ast.expr


def _named(text: str) -> str:
    """A text for `str.format` with a name in each pair of empty braces."""
    numbers = itertools.count(2)
    return re.sub(r"\{\}", lambda _: f"{{value{next(numbers)}}}", text.replace("{}", "{value}", 1))


def _pieces(node: ast.expr) -> list[list[Piece]] | None:
    """For each part of a text in turn, what it may be."""
    if isinstance(node, ast.Constant):
        return [[node.value]] if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return [
            [part.value] if isinstance(part, ast.Constant) else _choices(part.value)  # type: ignore[list-item, attr-defined]
            for part in node.values
        ]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _pieces(node.left), _pieces(node.right)
        if left is None and right is None:
            return None
        return [*(left or [_choices(node.left)]), *(right or [_choices(node.right)])]
    return None


def _choices(node: ast.expr) -> list[Piece]:
    """The texts of a condition, or the expression itself."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.IfExp):
        return [*_choices(node.body), *_choices(node.orelse)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and _is_text(node.left):
        return ["", *_choices(node.left)]  # the s of a plural
    return [node]


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _literal(text: Piece, is_template: bool) -> str:
    assert isinstance(text, str)
    return text.replace("{", "{{").replace("}", "}}") if is_template else text


def _placeholder(node: ast.expr, names: dict[str, int]) -> str:
    name = _name(node) or "value"
    names[name] = names.get(name, 0) + 1
    return f"{{{name}{names[name] if names[name] > 1 else ''}}}"


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id.lower().strip("_")
    if isinstance(node, ast.Attribute):
        return node.attr.lower().strip("_")
    if isinstance(node, ast.Subscript):
        return _name(node.value)
    if isinstance(node, ast.Call):
        return _name(node.args[0]) if node.args else _name(node.func)
    return ""


def _outermost(node: ast.AST) -> Iterator[ast.expr]:
    """The texts that are not parts of a larger text; parts with a text of their own are looked at too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr) and _pieces(child) is not None:
            yield child
            yield from _inside(child)
        else:
            yield from _outermost(child)


def _inside(node: ast.expr) -> Iterator[ast.expr]:
    """Texts in the expressions of an f-string."""
    if isinstance(node, ast.JoinedStr):
        for part in node.values:
            if isinstance(part, ast.FormattedValue) and not isinstance(part.value, ast.Name | ast.Attribute):
                yield from _outermost(ast.Expr(part.value))
    elif isinstance(node, ast.BinOp):
        for side in (node.left, node.right):
            yield from _inside(side) if _pieces(side) is not None else _outermost(ast.Expr(side))


def _docstrings(tree: ast.Module) -> set[int]:
    """The constants that stand alone: docstrings of modules, functions, classes and variables."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def _is_prose(text: str) -> bool:
    return bool(_PROSE.search(text)) and not _CODE.match(text.strip())
