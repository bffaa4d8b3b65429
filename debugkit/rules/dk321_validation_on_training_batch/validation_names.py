"""Whether the program's own names say that something is for validation: `model(x[test])`, `val_loader`."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from torch.utils.data import DataLoader

from debugkit.finding import SourceLine
from debugkit.frames import is_users
from debugkit.source_names import tree_of

_VALIDATION = frozenset({"val", "valid", "validation", "test", "eval", "evaluation", "held", "heldout", "holdout"})
_TRAINING = frozenset({"train", "training", "fit", "memory", "bank"})


def is_for_validation(name: str) -> bool:
    """
    >>> [is_for_validation(name) for name in ("val_loader", "X_test", "evalLoader", "train_eval", "testing_rig", "x")]
    [True, True, True, False, False, False]
    """
    words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}
    return bool(words & _VALIDATION) and not words & _TRAINING


def argument_for_validation(at: SourceLine) -> tuple[str, SourceLine] | None:
    """A variable for validation in the arguments of a call in this line, and the line that names it last.

    That is the line before in the same function that makes it another name of a variable, or the call's own.
    """
    tree = tree_of(at.file)
    names = [name for call in _calls(tree, at.line) for name in _names_in(call)]
    name = next(filter(is_for_validation, names), None)
    if name is None:
        return None
    aliases = [
        node.lineno
        for scope in _scopes(tree, at.line)
        for node in ast.walk(scope)
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
        and isinstance(node.value, ast.Name)
        and node.lineno < at.line
    ]
    return name, SourceLine(at.file, max(aliases), at.function) if aliases else at


def _calls(tree: ast.Module, line: int) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or node.lineno):
            yield node


def _names_in(call: ast.Call) -> Iterator[str]:
    for given in (*call.args, *(keyword.value for keyword in call.keywords)):
        yield from (node.id for node in ast.walk(given) if isinstance(node, ast.Name))


def _scopes(tree: ast.Module, line: int) -> list[ast.AST]:
    """The innermost function around a line, or the module."""
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return [max(functions, key=lambda node: node.lineno, default=tree)]


def name_for_validation(thing: Any) -> str | None:
    """The variable with a name for validation that holds `thing`, in the functions that run now."""
    frame: FrameType | None = sys._getframe(1)
    found = None
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            for name, value in [*frame.f_locals.items(), *frame.f_globals.items()]:
                is_around = (
                    isinstance(value, DataLoader) and vars(value).get("base_dataloader") is thing
                )  # Accelerate's
                if (value is thing or is_around) and is_for_validation(name):
                    found = found or name
            prefix = frame.f_locals.get("metric_key_prefix")
            if isinstance(prefix, str) and "train" in prefix:
                return None
        frame = frame.f_back
    return found
