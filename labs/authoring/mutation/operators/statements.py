"""Statements that are left out, skipped or put in another order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import libcst as cst

from labs.authoring.mutation.catalogue import operator
from labs.authoring.mutation.edit import Edit, summarise
from labs.authoring.mutation.python_source import PythonSource
from labs.authoring.mutation.syntax import parameters


@operator("drop_statement", "One statement is left out.")
def drop_statement(source: PythonSource) -> Iterator[Edit]:
    """`return` at a function's end and the first assignment of a name stay: without them nothing runs."""
    for line in source.all(cst.SimpleStatementLine):
        if len(line.body) == 1 and _can_go(source, line, line.body[0]):
            yield source.replace(line, "pass", summarise(source.text_of(line), "(left out)"))


@operator("drop_loop", "A loop does not run.")
def drop_loop(source: PythonSource) -> Iterator[Edit]:
    """The header stays, so that the body keeps its place: it runs over nothing."""
    for loop in source.all(cst.For):
        yield source.replace(loop.iter, "()", summarise(f"for … in {source.text_of(loop.iter)}", "(not run)"))
    for loop in source.all(cst.While):
        yield source.replace(loop.test, "False")


@operator("unwrap_block", "A `with` block runs without what is around it.")
def unwrap_block(source: PythonSource) -> Iterator[Edit]:
    """`if True:` keeps the body where it is. A block that gives a name to something is needed for the name."""
    for block in source.all(cst.With):
        if any(item.asname is not None for item in block.items) or isinstance(block.lpar, cst.LeftParen):
            continue
        start, end = source.span(block)[0], source.span(block.items[-1])[1]
        yield source.splice(block, start, end, "if True", summarise(source.between(start, end), "(without it)"))


@operator("swap_statements", "Two neighbouring calls are made in the other order.")
def swap_statements(source: PythonSource) -> Iterator[Edit]:
    lines = list(source.all(cst.SimpleStatementLine))
    for first, second in pairwise(lines):
        if source.parent(first) is source.parent(second) and _is_call(first) and _is_call(second):
            one, other = source.text_of(first), source.text_of(second)
            (start, middle), (again, end) = source.span(first), source.span(second)
            text = other + source.between(middle, again) + one
            yield source.splice(first, start, end, text, summarise(f"{one}; {other}", "(swapped)"))


def _is_call(line: cst.SimpleStatementLine) -> bool:
    only = line.body[0]
    return len(line.body) == 1 and isinstance(only, cst.Expr) and isinstance(only.value, cst.Call)


def _can_go(source: PythonSource, line: cst.SimpleStatementLine, small: cst.BaseSmallStatement) -> bool:
    if isinstance(small, cst.Assign):
        target = small.targets[0].target
        if isinstance(target, cst.Name):
            return _assigned_before(source, line, target.value)
        return _is_kept_elsewhere(source, line, target)
    if isinstance(small, (cst.Return, cst.Raise)):
        return isinstance(small, cst.Return) and _is_early(source, line)
    return not isinstance(small, (cst.Pass, cst.Global, cst.Nonlocal, cst.AnnAssign))


def _assigned_before(source: PythonSource, line: cst.SimpleStatementLine, name: str) -> bool:
    function = source.function(line)
    if function is None:
        return False
    if any(parameter.name.value == name for parameter in parameters(function)):
        return True
    earlier = source.span(line)[0]
    targets = (one for assign in source.inside(function, cst.Assign) for one in assign.targets)
    return any(
        isinstance(one.target, cst.Name) and one.target.value == name and source.span(one)[0] < earlier
        for one in targets
    )


def _is_kept_elsewhere(source: PythonSource, line: cst.SimpleStatementLine, target: cst.CSTNode) -> bool:
    """Attributes that `__init__` makes are needed by the rest of the class; others may already exist."""
    function = source.function(line)
    makes = function is not None and function.name.value == "__init__"
    return not (makes and isinstance(target, cst.Attribute) and source.text_of(target.value) == "self")


def _is_early(source: PythonSource, line: cst.SimpleStatementLine) -> bool:
    function = source.function(line)
    return function is not None and function.body.body[-1] is not line
