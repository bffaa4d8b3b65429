"""Numbers and flags: constants, defaults, class attributes, arguments."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from labs.authoring.mutation.catalogue import operator
from labs.authoring.mutation.edit import Edit, summarise
from labs.authoring.mutation.operators.places import axes
from labs.authoring.mutation.python_source import PythonSource
from labs.authoring.mutation.syntax import integer, is_constant


@operator("move_number", "A whole number is one more or one less; another number is doubled, or becomes 0 or 1.")
def move_number(source: PythonSource) -> Iterator[Edit]:
    places = set(axes(source))
    for number in source.all(cst.Integer):
        whole = _with_sign(source, number)
        value = integer(whole)
        if value is not None and whole not in places and not _is_place(source, whole):
            for moved in (value + 1, value - 1):
                yield source.replace(whole, str(moved), _where(source, whole, str(moved)))
    for real in source.all(cst.Float):
        if float(real.value) == 0:
            yield source.replace(real, "1.0", _where(source, real, "1.0"))
            continue
        for text, shown in ((f"({real.value} * 2)", f"{real.value} * 2"), ("0.0", "0.0")):
            yield source.replace(real, text, _where(source, real, shown))


@operator("flip_flag", "True becomes False, and the other way round.")
def flip_flag(source: PythonSource) -> Iterator[Edit]:
    for name in source.all(cst.Name):
        if name.value in ("True", "False") and not isinstance(source.parent(name), (cst.If, cst.While, cst.Attribute)):
            flipped = "False" if name.value == "True" else "True"
            yield source.replace(name, flipped, _where(source, name, flipped))


@operator("rescale_constant", "A constant is doubled where it is used, and not elsewhere.")
def rescale_constant(source: PythonSource) -> Iterator[Edit]:
    for name in source.all(cst.Name):
        if is_constant(name) and _is_used(source, name):
            yield source.replace(name, f"({name.value} * 2)", _where(source, name, f"{name.value} * 2"))


def _is_used(source: PythonSource, name: cst.Name) -> bool:
    parent = source.parent(name)
    if isinstance(parent, cst.Arg):
        return parent.value is name
    if isinstance(parent, cst.Element):
        return not isinstance(source.parent(source.parent(parent)), cst.AssignTarget)
    return isinstance(parent, (cst.BinaryOperation, cst.Return))


def _with_sign(source: PythonSource, number: cst.Integer) -> cst.BaseExpression:
    parent = source.parent(number)
    signed = isinstance(parent, cst.UnaryOperation) and isinstance(parent.operator, cst.Minus)
    return parent if signed and isinstance(parent, cst.UnaryOperation) else number


def _is_place(source: PythonSource, number: cst.BaseExpression) -> bool:
    """An index or the bound of a slice, which have operators of their own."""
    return isinstance(source.parent(number), (cst.Index, cst.Slice))


def _where(source: PythonSource, node: cst.CSTNode, text: str) -> str:
    """The change with the argument, target or operation around it: a bare `1 → 2` says little."""
    around = source.parent(node)
    if isinstance(around, cst.ComparisonTarget) or (isinstance(around, cst.Arg) and around.keyword is None):
        around = source.parent(around)
    if not isinstance(around, (cst.Arg, cst.Call, cst.BinaryOperation, cst.Param, cst.Comparison, cst.DictElement)):
        around = source.statement(node)
    if isinstance(around, cst.BaseCompoundStatement):
        around = node
    (outer, end), (start, stop) = source.span(around), source.span(node)
    before = source.between(outer, end)
    return summarise(before, source.between(outer, start) + text + source.between(stop, end))
