"""Arguments that are left out, swapped, or used one for another; decorators that are left out."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import libcst as cst

from labs.authoring.mutation.catalogue import operator
from labs.authoring.mutation.edit import Edit, summarise
from labs.authoring.mutation.python_source import PythonSource
from labs.authoring.mutation.syntax import annotation, called, is_literal, parameters, positional

_FIXED_ORDER = ("isinstance", "getattr", "setattr", "hasattr", "cast", "range", "zip", "Sequential")
_SYMMETRIC_LOSSES = ("mse_loss", "smooth_l1_loss", "l1_loss", "huber_loss")
_SYMMETRIC = (*_SYMMETRIC_LOSSES, "maximum", "minimum", "max", "min", "equal", "allclose")


@operator("drop_keyword", "A keyword argument is left out.")
def drop_keyword(source: PythonSource) -> Iterator[Edit]:
    for call in source.all(cst.Call):
        for index, argument in enumerate(call.args):
            if argument.keyword is not None:
                yield _without(source, call, index)


@operator("drop_decorator", "A decorator is left out.")
def drop_decorator(source: PythonSource) -> Iterator[Edit]:
    for decorator in source.all(cst.Decorator):
        name = source.text_of(decorator.decorator)
        if name in ("property", "staticmethod", "classmethod"):
            continue  # what calls it would stop at once
        decorated = source.parent(decorator)
        assert isinstance(decorated, (cst.FunctionDef, cst.ClassDef))
        after = [*decorated.decorators, decorated][decorated.decorators.index(decorator) + 1]
        start, end = source.span(decorator)[0], source.span(after)[0]
        yield source.splice(decorated, start, end, "", summarise(f"@{name}", "(left out)"))


@operator("swap_arguments", "Two neighbouring arguments of a call change places.")
def swap_arguments(source: PythonSource) -> Iterator[Edit]:
    for call in source.all(cst.Call):
        if called(call) in (*_FIXED_ORDER, *_SYMMETRIC):
            continue
        for one, other in _neighbours(call):
            if not (is_literal(one) and is_literal(other)):
                (start, middle), (again, end) = source.outer_span(one), source.outer_span(other)
                text = source.between(again, end) + source.between(middle, again) + source.between(start, middle)
                summary = f"{called(call)}: {summarise(source.between(start, end), text)}"
                yield source.splice(call, start, end, text, summary)


@operator("repeat_argument", "One argument of a call is given twice, in its own place and its neighbour's.")
def repeat_argument(source: PythonSource) -> Iterator[Edit]:
    for call in source.all(cst.Call):
        if called(call) in _FIXED_ORDER:
            continue
        for one, other in _neighbours(call):
            if not (_is_place(one) and _is_place(other)):
                continue
            yield source.replace(other, source.operand(one), _in_call(source, call, other, one))
            yield source.replace(one, source.operand(other), _in_call(source, call, one, other))


@operator("other_parameter", "A function reads another of its parameters, one of the same type.")
def other_parameter(source: PythonSource) -> Iterator[Edit]:
    for function in source.all(cst.FunctionDef):
        types = {one.name.value: annotation(one.annotation) for one in parameters(function)}
        for name in source.inside(function.body, cst.Name):
            kind = types.get(name.value)
            if not kind or source.function(name) is not function or not _is_read(source, name):
                continue
            alike = [other for other, its in types.items() if its == kind]
            if len(alike) > 1:
                other = alike[(alike.index(name.value) + 1) % len(alike)]
                yield source.replace(name, other, f"{_line(source, name)}: {name.value} → {other}")


def _neighbours(call: cst.Call) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """Neighbouring arguments that differ: positional ones, and named ones that are names or attributes."""
    plain = positional(call)
    named = [one.value for one in call.args if one.keyword is not None]
    named = [value for value in named if isinstance(value, (cst.Name, cst.Attribute))]
    for one, other in (*pairwise(plain), *pairwise(named)):
        if not one.deep_equals(other):
            yield one, other


def _is_place(node: cst.BaseExpression) -> bool:
    """A name, an attribute or an element: what someone writes twice by mistake."""
    return isinstance(node, (cst.Name, cst.Attribute, cst.Subscript)) and not is_literal(node)


def _without(source: PythonSource, call: cst.Call, index: int) -> Edit:
    """The call without one argument and the comma that parted it from the next or the one before."""
    start, end = source.span(call.args[index])
    if index + 1 < len(call.args):
        end = source.span(call.args[index + 1])[0]
    elif index:
        start = source.span(call.args[index - 1])[1]
    dropped = source.text_of(call.args[index])
    return source.splice(call, start, end, "", f"{called(call)}: {summarise(dropped, '(left out)')}")


def _in_call(source: PythonSource, call: cst.Call, old: cst.BaseExpression, new: cst.BaseExpression) -> str:
    return f"{called(call)}: {summarise(source.text_of(old), source.text_of(new))}"


def _is_read(source: PythonSource, name: cst.Name) -> bool:
    parent = source.parent(name)
    if isinstance(parent, cst.Attribute):
        return parent.value is name
    if isinstance(parent, cst.Arg):
        return parent.value is name
    return not isinstance(parent, (cst.AssignTarget, cst.Param, cst.Comparison))


def _line(source: PythonSource, node: cst.CSTNode) -> str:
    return " ".join(source.text_of(source.statement(node)).split())[:60]
