"""Conditions that are swapped, negated, always or never true, and comparisons that are moved."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from labs.authoring.mutation.catalogue import operator
from labs.authoring.mutation.edit import Edit, summarise
from labs.authoring.mutation.python_source import PythonSource
from labs.authoring.mutation.syntax import is_text

_OPPOSITE: dict[type[cst.BaseCompOp], str] = {
    cst.LessThan: ">=",
    cst.LessThanEqual: ">",
    cst.GreaterThan: "<=",
    cst.GreaterThanEqual: "<",
    cst.Equal: "!=",
    cst.NotEqual: "==",
    cst.Is: "is not",
    cst.IsNot: "is",
    cst.In: "not in",
    cst.NotIn: "in",
}
_NEXT = {cst.LessThan: "<=", cst.LessThanEqual: "<", cst.GreaterThan: ">=", cst.GreaterThanEqual: ">"}


@operator("negate_condition", "A condition is negated.")
def negate_condition(source: PythonSource) -> Iterator[Edit]:
    for test in _tests(source):
        if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
            yield _compare_by(source, test, _OPPOSITE[type(test.comparisons[0].operator)])
        elif isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            yield source.replace(test, source.operand(test.expression))
        else:
            yield source.replace(test, f"not ({source.text_of(test)})")


@operator("drop_condition", "A condition always holds, or never.")
def drop_condition(source: PythonSource) -> Iterator[Edit]:
    for test in _tests(source):
        for always in ("True", "False"):
            yield source.replace(test, always)


@operator("drop_operand", "One side of `and` or `or` is left out.")
def drop_operand(source: PythonSource) -> Iterator[Edit]:
    for both in source.all(cst.BooleanOperation):
        for kept in (both.left, both.right):
            yield source.replace(both, source.operand(kept))


@operator("swap_boolean", "`and` becomes `or`, and the other way round.")
def swap_boolean(source: PythonSource) -> Iterator[Edit]:
    for both in source.all(cst.BooleanOperation):
        word = "or" if isinstance(both.operator, cst.And) else "and"
        yield source.replace(both, f"{source.operand(both.left)} {word} {source.operand(both.right)}")


@operator("move_comparison", "A comparison includes or excludes its bound, or is turned round.")
def move_comparison(source: PythonSource) -> Iterator[Edit]:
    tests = set(_tests(source))
    for comparison in source.all(cst.Comparison):
        if len(comparison.comparisons) != 1:
            continue
        kind = type(comparison.comparisons[0].operator)
        if kind in _NEXT:
            yield _compare_by(source, comparison, _NEXT[kind])
        if comparison not in tests:
            yield _compare_by(source, comparison, _OPPOSITE[kind])


@operator("move_pattern", "A pattern that names are compared with matches every name, or none.")
def move_pattern(source: PythonSource) -> Iterator[Edit]:
    for call in source.all(cst.Call):
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in ("startswith", "endswith"):
            for result in ("True", "False"):
                yield source.replace(call, result)
    for comparison in source.all(cst.Comparison):
        held = comparison.comparisons[0]
        sides = (comparison.left, held.comparator)
        if isinstance(held.operator, (cst.In, cst.NotIn)) and any(map(is_text, sides)):
            for result in ("True", "False"):
                yield source.replace(comparison, result)


def _tests(source: PythonSource) -> list[cst.BaseExpression]:
    found: list[cst.BaseExpression] = []
    for node in source.all(cst.If, cst.While, cst.IfExp, cst.Assert, cst.CompIf):
        # `while True` has no condition
        if not (isinstance(node.test, cst.Name) and node.test.value in ("True", "False")):
            found.append(node.test)
    return found


def _compare_by(source: PythonSource, comparison: cst.Comparison, symbol: str) -> Edit:
    left, right = source.operand(comparison.left), source.operand(comparison.comparisons[0].comparator)
    text = f"{left} {symbol} {right}"
    return source.replace(comparison, text, summarise(source.text_of(comparison), text))
