"""Reductions and roundings that become another of their kind."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from labs.authoring.mutation.catalogue import operator
from labs.authoring.mutation.edit import Edit, summarise
from labs.authoring.mutation.python_source import PythonSource
from labs.authoring.mutation.syntax import called, keywords

_PAIRS = (
    ("mean", "sum"),
    ("amax", "amin"),
    ("max", "min"),
    ("maximum", "minimum"),
    ("argmax", "argmin"),
    ("any", "all"),
    ("cumsum", "cumprod"),
    ("softmax", "log_softmax"),
    ("floor", "ceil"),
    ("round", "floor"),
)
_OTHER = {one: other for pair in _PAIRS for one, other in (pair, pair[::-1])} | {"floor": "ceil"}
_REDUCTIONS = {"mean": ("sum",), "sum": ("mean",), "none": ("mean",), "batchmean": ("mean",)}


@operator("swap_reduction", "A reduction becomes another: mean and sum, max and min, any and all.")
def swap_reduction(source: PythonSource) -> Iterator[Edit]:
    for call in source.all(cst.Call):
        name = called(call)
        if name in _OTHER:
            node = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
            changed = _OTHER[name]
            before = source.text_of(call)
            start, end = source.span(node)
            at = source.span(call)[0]
            after = source.between(at, start) + changed + source.between(end, source.span(call)[1])
            yield source.replace(node, changed, summarise(before, after))
        argument = keywords(call).get("reduction")
        if argument is not None and isinstance(argument.value, cst.SimpleString):
            for other in _REDUCTIONS.get(str(argument.value.evaluated_value), ()):
                yield source.replace(argument.value, f'"{other}"', summarise(source.text_of(argument), f'"{other}"'))
