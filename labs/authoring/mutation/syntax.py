"""Questions about LibCST nodes that several operators ask."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
from libcst.helpers import get_full_name_for_node

_MODULE_NAMES = ("torch", "F", "nn", "functional", "np", "math")


def called(node: cst.CSTNode) -> str:
    """The last part of the name that a call calls: `detach` of `x.detach()`; empty where there is none."""
    if not isinstance(node, cst.Call):
        return ""
    if isinstance(node.func, cst.Attribute):
        return node.func.attr.value
    return node.func.value if isinstance(node.func, cst.Name) else ""


def receiver(node: cst.Call) -> cst.BaseExpression | None:
    """`x` of the method call `x.clamp(…)`; None for a plain function or one of a module: `torch.clamp(x)`."""
    if not isinstance(node.func, cst.Attribute) or is_library(node.func.value):
        return None
    return node.func.value


def is_library(node: cst.BaseExpression) -> bool:
    """Whether this names a module of functions: torch, F, nn.init."""
    return (get_full_name_for_node(node) or "").partition(".")[0] in _MODULE_NAMES


def positional(node: cst.Call) -> list[cst.BaseExpression]:
    """The positional arguments, as long as none is starred."""
    found = []
    for argument in node.args:
        if argument.keyword is not None or argument.star:
            break
        found.append(argument.value)
    return found


def keywords(node: cst.Call) -> dict[str, cst.Arg]:
    """The keyword arguments by name."""
    return {argument.keyword.value: argument for argument in node.args if argument.keyword is not None}


def integer(node: cst.CSTNode) -> int | None:
    """The value of `3` or `-1`; None for anything else."""
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        inner = integer(node.expression)
        return None if inner is None else -inner
    return int(node.evaluated_value) if isinstance(node, cst.Integer) else None


def is_literal(node: cst.CSTNode) -> bool:
    """A number, a string or a flag."""
    if isinstance(node, cst.UnaryOperation):
        return is_literal(node.expression)
    if isinstance(node, cst.Name):
        return node.value in ("True", "False", "None")
    return isinstance(node, (cst.Integer, cst.Float, cst.SimpleString, cst.ConcatenatedString, cst.FormattedString))


def is_text(node: cst.CSTNode) -> bool:
    """A string in any form."""
    return isinstance(node, (cst.SimpleString, cst.ConcatenatedString, cst.FormattedString))


def is_constant(node: cst.CSTNode) -> bool:
    """A name in capitals, as constants have."""
    return isinstance(node, cst.Name) and len(node.value) > 1 and node.value.isupper()


def parameters(function: cst.FunctionDef) -> Iterator[cst.Param]:
    """The parameters of a function without `self` and without starred ones."""
    for parameter in (*function.params.posonly_params, *function.params.params, *function.params.kwonly_params):
        if parameter.name.value not in ("self", "cls"):
            yield parameter


def annotation(node: cst.Annotation | None) -> str:
    """An annotation as text, without `| None`."""
    text = cst.Module([]).code_for_node(node.annotation) if node is not None else ""
    return text.replace(" | None", "").strip("\"'")


def argument_of(parent: cst.CSTNode, child: cst.CSTNode) -> bool:
    """Whether `child` is the value of this argument, and not its keyword."""
    return isinstance(parent, cst.Arg) and parent.value is child
