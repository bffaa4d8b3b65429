"""The set that something applies to: parameters, modules, the elements of a list."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import libcst as cst

from labs.authoring.mutation.catalogue import operator
from labs.authoring.mutation.edit import Edit, summarise
from labs.authoring.mutation.python_source import PythonSource
from labs.authoring.mutation.syntax import called, is_text, receiver

_SETS = ("parameters", "named_parameters", "modules", "named_modules", "children", "named_children", "buffers")
_MOST_ELEMENTS = 4
"""In a longer list, only the first elements are changed."""


@operator("narrow_parameters", "The first or the last of some parameters or modules is left out.")
def narrow_parameters(source: PythonSource) -> Iterator[Edit]:
    for call in source.all(cst.Call):
        if called(call) in _SETS and receiver(call) is not None:
            for part in ("[1:]", "[:-1]"):
                text = f"list({source.text_of(call)}){part}"
                yield source.replace(call, text, summarise(source.text_of(call), text))


@operator("widen_parameters", "The parameters of a module become those of the module around it.")
def widen_parameters(source: PythonSource) -> Iterator[Edit]:
    for call in source.all(cst.Call):
        inner = receiver(call)
        if called(call) in _SETS and isinstance(inner, cst.Attribute):
            around = source.text_of(inner.value)
            yield source.replace(inner, around, summarise(source.text_of(call), f"{around}.{called(call)}()"))


@operator("narrow_loop", "A loop or a comprehension leaves out what comes first.")
def narrow_loop(source: PythonSource) -> Iterator[Edit]:
    for loop in source.all(cst.For, cst.CompFor):
        if called(loop.iter) not in _SETS:
            # lazily: a stream may have no end
            text = f"__import__('itertools').islice({source.text_of(loop.iter)}, 1, None)"
            yield source.replace(loop.iter, text, summarise(f"in {source.text_of(loop.iter)}", "(without the first)"))


@operator("drop_filter", "The condition of a comprehension is left out.")
def drop_filter(source: PythonSource) -> Iterator[Edit]:
    for clause in source.all(cst.CompIf):
        yield source.replace(clause.test, "True", summarise(source.text_of(clause), "(left out)"))


@operator("drop_element", "A list, a dictionary or a tuple of names loses an element.")
def drop_element(source: PythonSource) -> Iterator[Edit]:
    for literal in source.all(cst.List, cst.Set, cst.Dict, cst.Tuple):
        elements = literal.elements
        if len(elements) < 2 or (isinstance(literal, cst.Tuple) and not _is_of_names(literal)):
            continue
        for index in range(min(len(elements), _MOST_ELEMENTS)):
            summary = summarise(source.text_of(elements[index]), "(left out of the list)")
            if isinstance(literal, cst.Tuple) and len(elements) == 2:
                # without its comma the tuple would be a text
                yield source.replace(literal, f"{source.text_of(elements[1 - index])},", summary)
                continue
            start, end = source.span(elements[index])
            if index + 1 < len(elements):
                end = source.span(elements[index + 1])[0]
            else:
                start = source.span(elements[index - 1])[1]
            yield source.splice(literal, start, end, "", summary)


@operator("swap_elements", "Two neighbouring elements of a list or a tuple change places.")
def swap_elements(source: PythonSource) -> Iterator[Edit]:
    for literal in source.all(cst.List, cst.Tuple):
        parent = source.parent(literal)
        if isinstance(parent, cst.AssignTarget) or getattr(parent, "target", None) is literal:
            continue
        for one, other in list(pairwise(literal.elements))[: _MOST_ELEMENTS - 1]:
            if one.value.deep_equals(other.value):
                continue
            (start, middle), (again, end) = source.span(one), source.span(other)
            text = source.between(again, end) + source.between(middle, again) + source.between(start, middle)
            yield source.splice(literal, start, end, text, summarise(source.between(start, end), text))


def _is_of_names(literal: cst.Tuple) -> bool:
    return all(is_text(element.value) for element in literal.elements)
