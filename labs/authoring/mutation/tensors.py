"""Which expressions of a function are probably tensors, judged by annotations and names alone."""

from __future__ import annotations

import libcst as cst

from labs.authoring.mutation.python_source import PythonSource
from labs.authoring.mutation.syntax import annotation, called, is_constant, is_library, is_literal, parameters, receiver

_NOT_TENSORS = frozenset(
    ["len", "float", "int", "bool", "str", "range", "item", "tolist", "size", "dim", "numel", "keys", "items"]
)
_DATA_WORDS = ["action", "actions", "target", "targets", "labels", "ids", "mask", "is_pad", "state", "batch", "frames"]
_DATA = tuple(f"_{word}" for word in _DATA_WORDS)
_CONVERSIONS = frozenset(
    ["normalize", "unnormalize", "normalise", "unnormalise", "float", "where", "zeros", "ones", "arange", "full"]
)
_NOT_TENSOR_ATTRIBUTES = ("shape", "dtype", "device", "ndim", "requires_grad", "config", "training")


class Tensors:
    """The names in one function that hold tensors."""

    def __init__(self, source: PythonSource, function: cst.FunctionDef) -> None:
        self._data: set[str] = set()
        self._names = {one.name.value for one in parameters(function) if annotation(one.annotation) == "Tensor"}
        for assign in source.inside(function, cst.Assign):
            self._follow(assign)

    def has(self, node: cst.BaseExpression) -> bool:
        """Whether this expression is probably one tensor."""
        if isinstance(node, cst.Name):
            return node.value in self._names
        if isinstance(node, cst.Attribute):
            return node.attr.value not in _NOT_TENSOR_ATTRIBUTES and self.has(node.value)
        if isinstance(node, cst.Call):
            return self._call(node)
        if isinstance(node, cst.Subscript):
            return self.has(node.value)
        if isinstance(node, cst.BinaryOperation):
            return self.has(node.left) or self.has(node.right)
        if isinstance(node, cst.UnaryOperation):
            return not isinstance(node.operator, cst.Not) and self.has(node.expression)
        if isinstance(node, cst.Comparison):
            compared = node.comparisons[0].operator
            return not isinstance(compared, (cst.Is, cst.IsNot, cst.In, cst.NotIn)) and self.has(node.left)
        return isinstance(node, cst.IfExp) and (self.has(node.body) or self.has(node.orelse))

    def is_data(self, node: cst.BaseExpression) -> bool:
        """Whether this is made of the data alone, with no weight in it: there is no gradient to lose."""
        if isinstance(node, cst.Name):
            return node.value in self._data or f"_{node.value}".endswith(_DATA)
        if isinstance(node, cst.Call):
            return self._is_converted_data(node)
        if isinstance(node, (cst.Attribute, cst.Subscript)):
            return self.is_data(node.value)
        if isinstance(node, cst.BinaryOperation):
            return all(is_literal(side) or is_constant(side) or self.is_data(side) for side in (node.left, node.right))
        if isinstance(node, cst.UnaryOperation):
            return self.is_data(node.expression)
        return isinstance(node, cst.Comparison)

    def _is_converted_data(self, node: cst.Call) -> bool:
        """A method of data, or a function without weights of nothing but data."""
        inner = receiver(node)
        if inner is not None and self.is_data(inner):
            return True
        values = [one.value for one in node.args if one.keyword is None]
        plain = inner is None and isinstance(node.func, cst.Attribute)
        converts = plain or called(node) in _CONVERSIONS or isinstance(node.func, cst.Name)
        return converts and all(is_literal(one) or is_constant(one) or self.is_data(one) for one in values)

    def _call(self, node: cst.Call) -> bool:
        if called(node) in _NOT_TENSORS:
            return False
        if isinstance(node.func, cst.Attribute) and not is_library(node.func.value) and self.has(node.func.value):
            return True
        return any(self.has(argument.value) for argument in node.args)

    def _follow(self, assign: cst.Assign) -> None:
        targets = [target.target for target in assign.targets]
        values = [assign.value]
        if isinstance(targets[0], cst.Tuple):
            # `motion, command = self.head(feature)`: one call gives both; `a, b = x, y` gives one each
            parts = assign.value.elements if isinstance(assign.value, cst.Tuple) else ()
            values = [part.value for part in parts] or [assign.value] * len(targets[0].elements)
            targets = [element.value for element in targets[0].elements]
        for target, value in zip(targets, values, strict=False):
            if isinstance(target, cst.Name) and self.has(value):
                self._names.add(target.value)
            if isinstance(target, cst.Name) and self.is_data(value):
                self._data.add(target.value)
