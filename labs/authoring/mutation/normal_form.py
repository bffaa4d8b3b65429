"""Forms of code that formatting and comments do not alter: to tell equal mutants apart, and to name them."""

from __future__ import annotations

import ast
import re
import textwrap


def normal_form(source: str) -> str:
    """What a Python file does, as text: its syntax tree without docstrings, bare strings, `pass` and `if True:`."""
    return ast.dump(_Simplify().visit(ast.parse(source)))


def normal_fragment(text: str) -> str:
    """An expression, a statement or a part of one, in one way of writing it."""
    dedented = textwrap.dedent(text).strip()
    # The header of a compound statement parses once it has a body.
    for attempt in (dedented, f"({dedented})", f"{dedented} pass", f"{dedented}\n    pass"):
        try:
            return ast.unparse(ast.parse(attempt)).removesuffix("pass").strip()
        except SyntaxError:
            continue
    # What still does not parse (`elif x:`, `dim=1`, one end of a slice) differs in space and in a last comma only.
    return re.sub(r",(?=[)\]}])", "", re.sub(r"\s+", "", dedented))


class _Simplify(ast.NodeTransformer):
    """Takes out what changes nothing."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return None
        return self.generic_visit(node)

    def visit_Pass(self, _: ast.Pass) -> None:
        return None

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        always = isinstance(node.test, ast.Constant) and node.test.value is True
        return node.body if always else node
