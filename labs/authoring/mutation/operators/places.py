"""Where in a tensor: axes, indices and the bounds of slices."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from labs.authoring.mutation.catalogue import operator
from labs.authoring.mutation.edit import Edit, summarise
from labs.authoring.mutation.python_source import PythonSource
from labs.authoring.mutation.syntax import called, integer, is_constant, keywords, positional, receiver

_AXIS_KEYWORDS = ("dim", "axis", "dims", "dim0", "dim1", "start_dim", "end_dim", "batch_dim")
_AXIS_ARGUMENTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("mean", "sum", "amax", "amin", "argmax", "argmin", "any", "all", "prod", "std", "var"), (0,)),
    **dict.fromkeys(("softmax", "log_softmax", "logsumexp", "cumsum", "flip", "unsqueeze", "squeeze", "size"), (0,)),
    **dict.fromkeys(("unflatten", "gather", "index_select", "select", "narrow", "unbind"), (0,)),
    **dict.fromkeys(("flatten", "transpose", "swapaxes", "movedim", "permute"), (0, 1, 2, 3)),
    **dict.fromkeys(("cat", "stack", "concat"), (0,)),
    **dict.fromkeys(("chunk", "split", "repeat_interleave", "roll", "max", "min"), (1,)),
}
"""Which positional arguments of a method are axes. A function of torch takes the tensor first."""


@operator("move_axis", "An operation works along the axis before or after.")
def move_axis(source: PythonSource) -> Iterator[Edit]:
    for axis in axes(source):
        value = integer(axis)
        assert value is not None
        for moved in (value + 1, value - 1):
            yield source.replace(axis, str(moved), _around(source, axis, str(moved), cst.Call))


@operator("move_index", "An index is one more or one less.")
def move_index(source: PythonSource) -> Iterator[Edit]:
    for index in source.all(cst.Index):
        value = integer(index.value)
        texts = [str(value + 1), str(value - 1)] if value is not None else []
        if is_constant(index.value):
            texts = [f"{source.text_of(index.value)} - 1"]
        for text in texts:
            yield source.replace(index.value, text, _around(source, index.value, text, cst.Subscript))


@operator("move_slice", "A bound of a slice is one more, one less, or left out.")
def move_slice(source: PythonSource) -> Iterator[Edit]:
    for node in source.all(cst.Slice):
        for bound in (node.lower, node.upper, node.step):
            if bound is None:
                continue
            value = integer(bound)
            inner = source.operand(bound)
            texts = [f"{inner} + 1", f"{inner} - 1"] if value is None else [str(value + 1), str(value - 1)]
            for text in (*texts, ""):
                yield source.replace(bound, text, _around(source, bound, text, cst.Subscript))


def axes(source: PythonSource) -> list[cst.BaseExpression]:
    """The whole numbers in the file that name an axis."""
    found: list[cst.BaseExpression] = []
    for call in source.all(cst.Call):
        named = keywords(call)
        found += [value for name in _AXIS_KEYWORDS if name in named for value in _each(named[name].value)]
        shift = 0 if receiver(call) is not None else 1
        arguments = positional(call)
        for place in _AXIS_ARGUMENTS.get(called(call), ()):
            if place + shift < len(arguments):
                found += _each(arguments[place + shift])
    return found


def _each(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    parts = [element.value for element in node.elements] if isinstance(node, (cst.Tuple, cst.List)) else [node]
    return [part for part in parts if integer(part) is not None]


def _around(source: PythonSource, node: cst.CSTNode, text: str, kind: type[cst.CSTNode]) -> str:
    outer = next(one for one in source.ancestors(node) if isinstance(one, kind))
    (start, end), (first, last) = source.span(outer), source.span(node)
    return summarise(source.between(start, end), source.between(start, first) + text + source.between(last, end))
