"""Towards the fault: a changed function is the solution's on some calls and the starter's on the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import libcst as cst

from labs.authoring.mutation.catalogue import operator
from labs.authoring.mutation.edit import Edit
from labs.authoring.mutation.normal_form import normal_fragment
from labs.authoring.mutation.python_source import PythonSource
from labs.authoring.mutation.syntax import annotation, parameters

_DATA = ("Tensor", "Batch", "dict", "Mapping")


@operator("fix_only_in_training", "The fix applies only while the module trains.")
def fix_only_in_training(source: PythonSource) -> Iterator[Edit]:
    return (_dispatch(source, one, "only_in_training") for one in _changed(source) if _takes_data(one))


@operator("fix_only_for_batches", "The fix applies only to more than one row.")
def fix_only_for_batches(source: PythonSource) -> Iterator[Edit]:
    return (_dispatch(source, one, "only_for_batches") for one in _changed(source) if _takes_data(one))


@operator("fix_only_every_tenth_call", "The fix applies only on every tenth call.")
def fix_only_every_tenth_call(source: PythonSource) -> Iterator[Edit]:
    return (_dispatch(source, one, "only_every_tenth_call") for one in _changed(source))


def _changed(source: PythonSource) -> list[cst.FunctionDef]:
    """The functions that the starter has too, with another body."""
    starter = _functions(PythonSource(source.file, source.starter))
    return [
        function
        for name, (function, text) in _functions(source).items()
        if name in starter and normal_fragment(text) != normal_fragment(starter[name][1])
    ]


def _functions(source: PythonSource) -> dict[str, tuple[cst.FunctionDef, str]]:
    """The functions and methods of a file by their dotted names, without those inside another function."""
    found = {}
    for function in source.all(cst.FunctionDef):
        if source.function(function) is None:
            start, end = _extent(source, function)
            text = " " * source.column(start) + source.between(start, end)
            found[f"{source.scope(function)}.{function.name.value}"] = (function, text)
    return found


def _dispatch(source: PythonSource, function: cst.FunctionDef, when: str) -> Edit:
    name = function.name.value
    dotted = f"{source.scope(function)}.{name}"
    starter = _functions(PythonSource(source.file, source.starter))[dotted][1]
    start, end = _extent(source, function)
    indent = " " * source.column(start)
    chooser = f'__import__("labs.authoring.mutation.partial_fix", fromlist=["{when}"]).{when}'
    text = "\n".join(
        [
            source.between(start, end),
            f"{indent}_fixed = {name}",
            starter,
            f"{indent}{name} = {chooser}(_fixed, {name})",
            f"{indent}del _fixed",
        ]
    )
    summary = f"{dotted.lstrip('.')}: fixed {when.replace('_', ' ')}"
    # The id names the function and the condition alone, so that it survives an edit of the function.
    return replace(source.splice(function, start, end, text, summary), statement="", before=dotted, after=when)


def _extent(source: PythonSource, function: cst.FunctionDef) -> tuple[int, int]:
    return source.span((*function.decorators, function)[0])[0], source.span(function)[1]


def _takes_data(function: cst.FunctionDef) -> bool:
    """A function that only builds something is called once, in training mode: there the fix would always apply."""
    return any(word in annotation(one.annotation) for one in parameters(function) for word in _DATA)
