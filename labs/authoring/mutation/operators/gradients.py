"""Who gets a gradient, and in which mode a module runs: detach, no_grad, clone, eval and train."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from labs.authoring.mutation.catalogue import operator
from labs.authoring.mutation.edit import Edit, summarise
from labs.authoring.mutation.python_source import PythonSource
from labs.authoring.mutation.syntax import annotation, called, parameters, receiver
from labs.authoring.mutation.tensors import Tensors

_MODES = {"eval": "train", "train": "eval"}


@operator("drop_detach", "`detach()` is left out.")
def drop_detach(source: PythonSource) -> Iterator[Edit]:
    yield from _without_method(source, ("detach",))


@operator("drop_clone", "`clone()` is left out.")
def drop_clone(source: PythonSource) -> Iterator[Edit]:
    yield from _without_method(source, ("clone", "copy", "deepcopy"))


@operator("swap_mode", "`eval()` becomes `train()`, and the other way round.")
def swap_mode(source: PythonSource) -> Iterator[Edit]:
    for call in source.all(cst.Call):
        if called(call) in _MODES and receiver(call) is not None and isinstance(call.func, cst.Attribute):
            other = _MODES[call.func.attr.value]
            yield source.replace(call.func.attr, other, f"{source.text_of(call)} → {other}()")


@operator("add_mode", "A function first puts the policy it was given into training or evaluation mode.")
def add_mode(source: PythonSource) -> Iterator[Edit]:
    for function in source.all(cst.FunctionDef):
        if not any(source.is_mutable(line) for line in function.body.body):
            continue
        for parameter in parameters(function):
            if annotation(parameter.annotation).endswith("Policy") or parameter.name.value in ("policy", "model"):
                for mode in _MODES:
                    yield _first(source, function, f"{parameter.name.value}.{mode}()")


@operator("add_detach", "A tensor is detached where it is computed or returned.")
def add_detach(source: PythonSource) -> Iterator[Edit]:
    for value, tensors in computed_tensors(source):
        if not tensors.is_data(value):
            yield source.replace(value, f"({source.text_of(value)}).detach()", _appended(source, value, "detach()"))


@operator("add_no_grad", "A function runs without gradients.")
def add_no_grad(source: PythonSource) -> Iterator[Edit]:
    """One that returns a tensor is left to `add_detach`, which does the same there."""
    for function in source.all(cst.FunctionDef):
        takes = any("Tensor" in annotation(one.annotation) for one in parameters(function))
        if takes and annotation(function.returns) != "Tensor" and "import torch\n" in source.text:
            start = source.span((*function.decorators, function)[0])[0]
            indent = " " * source.column(start)
            name = function.name.value
            yield source.splice(function, start, start, f"@torch.no_grad()\n{indent}", f"{name} under no_grad")


@operator("add_clone", "A name or an attribute gets a copy of a tensor or of a parameter.")
def add_clone(source: PythonSource) -> Iterator[Edit]:
    for assign in source.all(cst.Assign):
        function, value = source.function(assign), assign.value
        shared = isinstance(assign.targets[0].target, (cst.Attribute, cst.Subscript))
        if not shared or function is None or not isinstance(value, (cst.Name, cst.Attribute, cst.Subscript)):
            continue
        if _is_weight(value) or Tensors(source, function).has(value):
            text = f"{source.text_of(value)}.clone()"
            yield source.replace(value, text, summarise(source.text_of(assign), text))


def computed_tensors(source: PythonSource) -> Iterator[tuple[cst.BaseExpression, Tensors]]:
    """What is assigned to one name or returned and is probably a tensor, with what is known of its function."""
    for function in source.all(cst.FunctionDef):
        tensors = Tensors(source, function)
        for node in source.inside(function.body, cst.Assign, cst.Return):
            if source.function(node) is not function or node.value is None:
                continue
            if isinstance(node, cst.Assign) and not isinstance(node.targets[0].target, cst.Name):
                continue
            returns = annotation(function.returns) == "Tensor" and isinstance(node, cst.Return)
            if isinstance(node, cst.Return) and not returns:
                continue
            if returns or tensors.has(node.value):
                yield node.value, tensors


def _without_method(source: PythonSource, names: tuple[str, ...]) -> Iterator[Edit]:
    for call in source.all(cst.Call):
        inner = receiver(call)
        if called(call) in names and inner is not None and not call.args:
            yield source.replace(call, source.operand(inner))


def _first(source: PythonSource, function: cst.FunctionDef, statement: str) -> Edit:
    """The function with a statement before its first one; its docstring stays the first."""
    first = next(line for line in function.body.body if source.is_mutable(line))
    start = source.span(first)[0]
    indent = " " * source.column(start)
    return source.splice(function, start, start, f"{statement}\n{indent}", f"{function.name.value}: first {statement}")


def _is_weight(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Attribute) and node.attr.value in ("weight", "bias", "data")


def _appended(source: PythonSource, node: cst.BaseExpression, method: str) -> str:
    return f"{summarise(source.text_of(source.statement(node)), f'….{method}')}"
