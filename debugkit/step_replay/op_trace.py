"""Inspect a forward pass operation by operation, to find the first that produces a NaN or an Inf.

An Inf that an operation only writes (`masked_fill`, `full`, `where`) is intended, as in attention masks. An Inf that
was computed is remembered together with its storage. If it becomes a NaN later, the operation that computed the Inf is
reported, and not the one that turned it into a NaN.
"""

from __future__ import annotations

import linecache
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from debugkit._torch_private import TorchDispatchMode, schema_of
from debugkit.finding import SourceLine
from debugkit.frames import user_line
from debugkit.recorders.timeline import has_range, kind_of
from debugkit.structure import tensors_in

# fmt: off
PLACES = frozenset((
    "masked_fill", "masked_fill_", "masked_scatter", "fill", "fill_", "full", "full_like", "new_full", "where",
    "scatter", "scatter_", "index_put", "index_put_", "index_fill", "index_fill_", "copy_", "copy", "_to_copy",
    "fill_diagonal_", "__setitem__", "masked_scatter_", "diagonal_scatter", "clone", "cat", "stack", "lift_fresh",
    "lift_fresh_copy", "tril", "triu", "constant_pad_nd", "scalar_tensor",
    "slice_scatter", "select_scatter", "index_copy", "index_copy_",
))
"""Operations that only write or copy values."""
HALF = frozenset((torch.float16, torch.bfloat16))
_ALLOCATES = frozenset((
    "empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted",
))
# fmt: on


@dataclass(frozen=True)
class Operation:
    """An operation that produced a non-finite value."""

    name: str
    kind: str  # NaN, Inf or -Inf
    inputs: str
    inputs_finite: bool
    module: str | None
    at: SourceLine | None
    code: str
    placed: bool  # it only wrote a value that it received


class OpTrace(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """After `with OpTrace() as trace: model(x)`, `trace.first` is the operation, or None.

    With `overflows`, it is the first operation that made an Inf in 16 bits from finite values, even if nothing follows.
    """

    def __init__(self, *, overflows: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.overflows = overflows
        self.first: Operation | None = None
        self.first_minus_inf: Operation | None = None  # computed, but it may still end well: exp(-inf) is 0
        self.modules: list[str] = []  # paths of the module calls running now; the caller maintains it
        self._held: dict[int, Operation] = {}  # storage -> what put a non-finite value there

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.first is not None:
            return func(*args, **kwargs)
        mutable = schema_of(func).is_mutable
        given = list(_ranged((args, kwargs)))
        before = [(_storage(t), kind_of(t)) for t in given] if mutable else None
        output = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if name not in _ALLOCATES:
            self._examine(name, before, given, (args, kwargs), output)
        return output

    def _examine(
        self, name: str, before: list[tuple[int, str | None]] | None, given: list[Tensor], arguments: Any, output: Any
    ) -> None:
        made = list(_ranged(output))
        kinds = [kind_of(tensor) for tensor in made]
        if not any(kinds):
            sources = {_storage(tensor) for tensor in given}
            for tensor in made:
                if _storage(tensor) not in sources:
                    self._held.pop(_storage(tensor), None)  # the storage of a freed tensor was reused
            return
        inputs = before if before is not None else [(_storage(t), kind_of(t)) for t in given]
        bad_inputs = [(storage, kind) for storage, kind in inputs if kind]
        worst = next(kind for kind in ("NaN", "Inf", "-Inf") if kind in kinds)
        known = next((self._held[storage] for storage, _ in bad_inputs if storage in self._held), None)
        placed = name in PLACES and (bool(bad_inputs) or _has_infinite_number(arguments))
        operation = Operation(
            name=name,
            kind=worst,
            inputs=_describe([kind for _, kind in bad_inputs if kind], known),
            inputs_finite=not bad_inputs,
            module=self.modules[-1] if self.modules else None,
            at=(line := user_line()),
            code=linecache.getline(line.file, line.line).strip() if line else "",
            placed=placed and worst != "NaN",
        )
        if self.overflows:
            half = any(kind == "Inf" and tensor.dtype in HALF for tensor, kind in zip(made, kinds, strict=True))
            self.first = operation if half and operation.inputs_finite and not operation.placed else None
            return
        self._decide(operation, known, [kind for _, kind in bad_inputs if kind])
        given_storages = {storage for storage, _ in inputs}
        for tensor, kind in zip(made, kinds, strict=True):
            if kind and not (_storage(tensor) in given_storages and _storage(tensor) in self._held):
                self._held[_storage(tensor)] = known or operation

    def _decide(self, operation: Operation, known: Operation | None, bad_inputs: list[str]) -> None:
        if operation.kind == "-Inf" and not operation.placed and known is None:
            self.first_minus_inf = self.first_minus_inf or operation
        if operation.kind == "-Inf" or operation.placed:
            return  # possibly a mask: a later operation decides
        if known is not None and known.placed and operation.kind == "Inf" and set(bad_inputs) != {"-Inf"}:
            return  # the intended Inf, passed on
        self.first = known if known is not None and not known.placed else operation


def _ranged(value: Any) -> Iterator[Tensor]:
    return (tensor for _, tensor in tensors_in(value) if has_range(tensor))


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _has_infinite_number(arguments: Any) -> bool:
    args, kwargs = arguments
    return any(isinstance(value, float) and math.isinf(value) for value in (*args, *kwargs.values()))


def _describe(kinds: list[str], known: Operation | None) -> str:
    if not kinds:
        return "finite"
    came = f" from {known.name}" if known is not None else ""
    return f"{' and '.join(sorted(set(kinds)))}{came}"
