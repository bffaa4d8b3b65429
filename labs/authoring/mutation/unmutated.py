"""What no operator changes: types, imports, documentation, and text that only a person reads."""

from __future__ import annotations

import libcst as cst
from libcst.helpers import get_full_name_for_node

_PRINTS = ("print", "log", "logger", "logging", "warnings", "typer", "console")
_TYPES = ("Callable", "Iterable", "Iterator", "Mapping", "Sequence", "Literal", "Annotated", "Optional", "Union")
_ALWAYS = (cst.Annotation, cst.FormattedString, cst.Comment)


def is_unmutated(node: cst.CSTNode, parent: cst.CSTNode) -> bool:
    """Whether this child of `parent`, and all inside it, stays as it is."""
    if isinstance(node, _ALWAYS):
        return True
    if isinstance(node, cst.SimpleStatementLine):
        return all(map(_is_for_readers, node.body))
    if isinstance(node, cst.If):
        return _is_guard(node.test)
    if isinstance(node, cst.Decorator):
        return _is_structure(node)
    if isinstance(parent, cst.Raise):
        return True  # the message; the error's type is changed by an operator that starts at `raise`
    return isinstance(parent, cst.Assert) and node is parent.msg


def _is_for_readers(node: cst.BaseSmallStatement) -> bool:
    """An import, a docstring, a line for a log, or a name for a type."""
    if isinstance(node, (cst.Import, cst.ImportFrom)):
        return True
    if isinstance(node, cst.Expr):
        return isinstance(node.value, (cst.SimpleString, cst.ConcatenatedString)) or prints(node.value)
    if isinstance(node, cst.Assign):
        names = [target.target for target in node.targets]
        return _is_type(node.value) or any(isinstance(name, cst.Name) and name.value == "__all__" for name in names)
    return False


def prints(node: cst.BaseExpression) -> bool:
    """Whether this is a call that writes text for a person."""
    name = get_full_name_for_node(node.func) if isinstance(node, cst.Call) else None
    root, _, rest = (name or "").partition(".")
    return root in _PRINTS and (bool(rest) or root == "print")


def _is_type(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Subscript) and get_full_name_for_node(node.value) in _TYPES


def _is_guard(test: cst.BaseExpression) -> bool:
    """`if TYPE_CHECKING:` and `if __name__ == "__main__":`, neither of which a grade runs."""
    if isinstance(test, cst.Comparison):
        test = test.left
    return isinstance(test, cst.Name) and test.value in ("TYPE_CHECKING", "__name__")


def _is_structure(node: cst.Decorator) -> bool:
    """`@dataclass(frozen=True)` says what a class is made of; without it there is no lab left to grade."""
    called = node.decorator.func if isinstance(node.decorator, cst.Call) else node.decorator
    name = get_full_name_for_node(called) or ""
    return name.rpartition(".")[2] in ("dataclass", "override", "main", "overload")
