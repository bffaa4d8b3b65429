"""A parsed Python file: the nodes that may change, where they are, and how an edit of one is made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper

from labs.authoring.mutation.edit import Edit, summarise
from labs.authoring.mutation.normal_form import normal_fragment
from labs.authoring.mutation.unmutated import is_unmutated

_Node = TypeVar("_Node", bound=cst.CSTNode)
_COMPOUND = (cst.If, cst.For, cst.While, cst.With, cst.Try, cst.FunctionDef, cst.ClassDef, cst.Match)
Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement


class PythonSource:
    """One editable file of a solution. `starter` is the text of the same file in the starter."""

    def __init__(self, file: str, text: str, starter: str = "") -> None:
        self.file = file
        self.text = text
        self.starter = starter
        wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
        self.module = wrapper.module
        self._bytes = text.encode()
        self._spans = wrapper.resolve(ByteSpanPositionProvider)
        self._parents: dict[cst.CSTNode, cst.CSTNode] = {}
        self._mutable: list[cst.CSTNode] = []
        self._inside: dict[cst.CSTNode, slice] = {}
        self._read(self.module, mutable=True)

    def all(self, *types: type[_Node]) -> Iterator[_Node]:
        """The nodes of these types that may be changed, in the file's order."""
        return (node for node in self._mutable if isinstance(node, types))

    def inside(self, root: cst.CSTNode, *types: type[_Node]) -> Iterator[_Node]:
        """Those of them that lie inside `root`, or are it."""
        return (node for node in self._mutable[self._inside[root]] if isinstance(node, types))

    def is_mutable(self, node: cst.CSTNode) -> bool:
        """Whether this node may be changed."""
        return self._mutable[self._inside[node]][:1] == [node]

    def parent(self, node: cst.CSTNode) -> cst.CSTNode:
        """The node around this one."""
        return self._parents[node]

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The nodes around this one, from the inside out."""
        while node in self._parents:
            node = self._parents[node]
            yield node

    def function(self, node: cst.CSTNode) -> cst.FunctionDef | None:
        """The innermost function around this node."""
        return next((one for one in self.ancestors(node) if isinstance(one, cst.FunctionDef)), None)

    def owner(self, function: cst.FunctionDef) -> cst.ClassDef | None:
        """The class whose method this is."""
        around = [one for one in self.ancestors(function) if isinstance(one, (cst.FunctionDef, cst.ClassDef))]
        return around[0] if around and isinstance(around[0], cst.ClassDef) else None

    def statement(self, node: cst.CSTNode) -> Statement:
        """The smallest statement that holds this node."""
        for one in (node, *self.ancestors(node)):
            if isinstance(one, (cst.SimpleStatementLine, *_COMPOUND)):
                return one
        raise ValueError(f"{self.text_of(node)} is in no statement")

    def scope(self, node: cst.CSTNode) -> str:
        """The dotted name of the function or class around this node; empty at the top of the file."""
        around = [one.name.value for one in self.ancestors(node) if isinstance(one, (cst.FunctionDef, cst.ClassDef))]
        return ".".join(reversed(around))

    def text_of(self, node: cst.CSTNode) -> str:
        """The node as the file has it, without the parentheses around it."""
        start, end = self.span(node)
        return self.between(start, end)

    def operand(self, node: cst.BaseExpression) -> str:
        """The node as it can be written anywhere in an expression: with its own parentheses."""
        text = self.text_of(node)
        return f"({text})" if node.lpar else text

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """Byte offsets of the node, its own parentheses excluded."""
        span = self._spans[node]
        return span.start, span.start + span.length

    def outer_span(self, node: cst.BaseExpression) -> tuple[int, int]:
        """Byte offsets of an expression with its own parentheses."""
        first, last = (node.lpar[0], node.rpar[-1]) if node.lpar else (node, node)
        return self._spans[first].start, self.span(last)[1]

    def column(self, start: int) -> int:
        """How many characters stand before this offset on its line."""
        return len(self.between(self._bytes.rfind(b"\n", 0, start) + 1, start))

    def between(self, start: int, end: int) -> str:
        """The file's text between two byte offsets."""
        return self._bytes[start:end].decode()

    def replace(self, node: cst.CSTNode, text: str, summary: str | None = None) -> Edit:
        """An edit that writes `text` in place of the node."""
        return self.splice(node, *self.span(node), text, summary)

    def splice(self, at: cst.CSTNode, start: int, end: int, text: str, summary: str | None = None) -> Edit:
        """An edit of the bytes `start:end`, which belong to the statement of `at`."""
        before = self.between(start, end)
        return Edit(
            start=start,
            end=end,
            text=text,
            line=self._bytes[:start].count(b"\n") + 1,
            scope=self.scope(at),
            statement=normal_fragment(self._header(self.statement(at))),
            before=normal_fragment(before),
            after=normal_fragment(text),
            summary=summary or summarise(before, text),
        )

    def _header(self, statement: Statement) -> str:
        """A statement; of a compound one, the part before its body."""
        if isinstance(statement, cst.SimpleStatementLine):
            return self.text_of(statement)
        body = getattr(statement, "body", None)
        inner = body.body if isinstance(body, (cst.IndentedBlock, cst.SimpleStatementSuite)) else ()
        end = self.span(inner[0])[0] if inner else self.span(statement)[1]
        return self.between(self.span(statement)[0], end).rstrip()

    def _read(self, node: cst.CSTNode, *, mutable: bool) -> None:
        first = len(self._mutable)
        if mutable and node in self._spans:
            self._mutable.append(node)
        for child in node.children:
            self._parents[child] = node
            self._read(child, mutable=mutable and not is_unmutated(child, node))
        self._inside[node] = slice(first, len(self._mutable))
