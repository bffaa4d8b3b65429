"""The inputs and outputs of every module of one forward, and where a forward failed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from debugkit.finding import SourceLine
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData, show_line

Fault = Literal["dtype", "device", "placeholders", "index", "shape", "something else"]
_RAISED_BY_TORCH = frozenset({"RuntimeError", "ValueError", "IndexError", "AssertionError", "EinopsError"})
_WORDS: tuple[tuple[Fault, str], ...] = (
    (
        "dtype",
        r"dtype|scalar type|Input type \(|not implemented for '|can't be cast|must have the type torch"
        r"|tensors used as ind(ex|ic)es must be"
        r"|can't convert .* to|expected .*(float|double|half|long|int)\w* but (got|found)",
    ),
    ("device", r"same device|two devices|on cpu|on cuda|device type"),
    ("placeholders", r"(features and .*tokens|tokens .*and features).*(do not|don't) match|placeholder"),
    ("index", r"index out of range in self|is out of bounds|class values must be"),
    (
        "shape",
        r"shape|size|dimension|\bdims?\b|mat1 and mat2|channels|must match|broadcast|expanded|too many indices"
        r"|inner product",
    ),
)


@dataclass(frozen=True)
class TensorShape(PlainData):
    """A tensor without its values."""

    shape: tuple[int, ...]
    dtype: str
    device: str

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.shape))})"


@dataclass(frozen=True)
class ModuleCall(PlainData):
    """One call of one module, in order of completion. `parameters` counts its numbers, children included."""

    module: str
    kind: str
    inputs: tuple[TensorShape, ...]
    outputs: tuple[TensorShape, ...]
    parameters: int
    trainable: int


@dataclass(frozen=True)
class ShapeFailure(PlainData):
    """Where a forward raised: the innermost module that was running, and its inputs.

    `expected` and `received` are the sizes of the dimension that does not fit, if the module's class determines it.
    `producer` is the module that produced the tensor. The config fields are those that hold one of the two sizes.
    """

    module: str
    kind: str
    message: str
    line: SourceLine | None
    inputs: tuple[TensorShape, ...]
    expected: int | None = None
    received: int | None = None
    producer: str | None = None
    fields_that_fit_expected: tuple[str, ...] = ()
    fields_that_fit_received: tuple[str, ...] = ()
    parameter_dtype: str | None = None
    """The dtype of the module's own weights, if it has any."""

    @property
    def about(self) -> Fault:
        """The kind of fault, from the words of the message: torch raises RuntimeError and ValueError for all kinds."""
        if self.message.partition(":")[0] not in _RAISED_BY_TORCH:
            return "something else"
        found = (fault for fault, words in _WORDS if re.search(words, self.message, re.IGNORECASE))
        return next(found, "something else")

    @property
    def in_a_module(self) -> bool:
        """Whether a module was running, and not the loss or the loop around the model."""
        return bool(self.module or self.inputs)

    def __str__(self) -> str:
        lines = [f"{self.kind} `{self.module or '(root)'}` raised: {self.message}"]
        if self.line is not None:
            lines.append(f"  at        {show_line(self.line)}")
        if self.inputs:
            lines.append(f"  got       {', '.join(map(str, self.inputs))}")
        if self.expected is not None:
            fields = f"  = {', '.join(self.fields_that_fit_expected)}" if self.fields_that_fit_expected else ""
            lines.append(f"  expected  {self.expected}{fields}")
        if self.received is not None:
            fields = f"  = {', '.join(self.fields_that_fit_received)}" if self.fields_that_fit_received else ""
            lines.append(f"  received  {self.received}{fields}")
        if self.producer is not None:
            lines.append(f"  made by   `{self.producer or '(root)'}`")
        return "\n".join(lines)


@observed_by(".measure:ShapeProbe")
@dataclass(frozen=True)
class ShapeTrace(PlainData):
    """The result of `trace_shapes`: every module call of one forward pass, and the failure if one ended it."""

    calls: tuple[ModuleCall, ...]
    failure: ShapeFailure | None = None

    def __str__(self) -> str:
        rows = [("module", "class", "in", "out", "dtype", "parameters")]
        rows += [_row(call) for call in self.calls]
        widths = [min(48, max(len(row[column]) for row in rows)) for column in range(6)]
        lines = [
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        lines.insert(1, "  ".join("─" * width for width in widths))
        return "\n".join([*lines, *(["", str(self.failure)] if self.failure else [])])


@dataclass(frozen=True)
class ShapeChange(PlainData):
    """A module whose shapes differ between two calls, or differ from the declared ones."""

    module: str
    call: int
    expected: str
    received: str

    def __str__(self) -> str:
        return f"`{self.module or '(root)'}`, call {self.call}: expected {self.expected}, got {self.received}"


@dataclass(frozen=True)
class ShapeHistory(PlainData):
    """What `watch_shapes` recorded: broken declarations, and shapes that changed beyond the first dimension."""

    violations: tuple[ShapeChange, ...]
    changes: tuple[ShapeChange, ...]
    calls: int

    def __str__(self) -> str:
        lines = [f"{self.calls} module calls, {len(self.violations)} broken declarations, {len(self.changes)} changes"]
        return "\n".join([*lines, *(f"  broken   {one}" for one in self.violations), *map(_changed, self.changes)])


def _changed(change: ShapeChange) -> str:
    return f"  changed  {change}"


def _row(call: ModuleCall) -> tuple[str, str, str, str, str, str]:
    dtypes = dict.fromkeys(tensor.dtype for tensor in call.outputs or call.inputs)
    ins, outs = (" ".join(map(str, tensors)) or "–" for tensors in (call.inputs, call.outputs))
    return call.module or "(root)", call.kind, ins, outs, " ".join(dtypes), f"{call.parameters:,}"
