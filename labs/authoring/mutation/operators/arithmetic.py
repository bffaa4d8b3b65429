"""Sums and products: another operation, one operand alone, another sign."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from labs.authoring.mutation.catalogue import operator
from labs.authoring.mutation.edit import Edit
from labs.authoring.mutation.python_source import PythonSource
from labs.authoring.mutation.syntax import is_literal, is_text

_OTHER: dict[type[cst.BaseBinaryOp], str] = {
    cst.Add: "-",
    cst.Subtract: "+",
    cst.Multiply: "/",
    cst.Divide: "*",
    cst.FloorDivide: "*",
    cst.Modulo: "//",
    cst.Power: "*",
    cst.BitAnd: "|",
    cst.BitOr: "&",
    cst.MatrixMultiply: "*",
}
_OTHER_ASSIGNED: dict[type[cst.BaseAugOp], str] = {
    cst.AddAssign: "-=",
    cst.SubtractAssign: "+=",
    cst.MultiplyAssign: "/=",
    cst.DivideAssign: "*=",
}


@operator("swap_arithmetic", "An arithmetic operation becomes its counterpart: + and −, * and /.")
def swap_arithmetic(source: PythonSource) -> Iterator[Edit]:
    for node in source.all(cst.BinaryOperation):
        symbol = _OTHER.get(type(node.operator))
        if symbol is not None and _is_numeric(node):
            yield source.replace(node, f"{source.operand(node.left)} {symbol} {source.operand(node.right)}")
    for statement in source.all(cst.AugAssign):
        symbol = _OTHER_ASSIGNED.get(type(statement.operator))
        if symbol is not None:
            target, value = source.text_of(statement.target), source.operand(statement.value)
            yield source.replace(statement, f"{target} {symbol} {value}")


@operator("drop_term", "Of a sum, a product or a difference one operand is left.")
def drop_term(source: PythonSource) -> Iterator[Edit]:
    for node in source.all(cst.BinaryOperation):
        if _is_numeric(node):
            for kept in (node.left, node.right):
                if not is_literal(kept):
                    yield source.replace(node, source.operand(kept))


@operator("drop_total", "`+=` becomes `=`: the last value instead of all of them.")
def drop_total(source: PythonSource) -> Iterator[Edit]:
    for statement in source.all(cst.AugAssign):
        yield source.replace(statement, f"{source.text_of(statement.target)} = {source.text_of(statement.value)}")


@operator("drop_sign", "A sign, or the complement of a mask, is left out.")
def drop_sign(source: PythonSource) -> Iterator[Edit]:
    for node in source.all(cst.UnaryOperation):
        if isinstance(node.operator, (cst.Minus, cst.BitInvert)) and not is_literal(node):
            yield source.replace(node, source.operand(node.expression))


def _is_numeric(node: cst.BinaryOperation) -> bool:
    """Not a text with something appended."""
    return not (is_text(node.left) or is_text(node.right))
