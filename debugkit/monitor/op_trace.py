"""Runs a forward pass operation by operation and finds the first that makes a NaN or an Inf.

A deliberate Inf is no fault: one that an operation merely put in place (`masked_fill`, `full`, `where`), as attention
masks do. An Inf that was computed is remembered by the storage it lies in, so that when it later turns into a NaN the
operation that made it is named, and not the one that stumbled over it.
"""

from __future__ import annotations

import linecache
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from debugkit.finding import SourceLine
from debugkit.frames import user_line
from debugkit.monitor.timeline import has_range, nonfinite_kind
from debugkit.structure import tensors_in

# fmt: off
PLACES = frozenset((
    "masked_fill", "masked_fill_", "masked_scatter", "fill", "fill_", "full", "full_like", "new_full", "where",
    "scatter", "scatter_", "index_put", "index_put_", "index_fill", "index_fill_", "copy_", "copy", "_to_copy",
    "clone", "cat", "stack", "lift_fresh", "lift_fresh_copy", "tril", "triu", "constant_pad_nd", "scalar_tensor",
    "slice_scatter", "select_scatter", "index_copy", "index_copy_",
))
"""Operations that put a value somewhere and compute none."""
_ALLOCATES = frozenset((
    "empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted",
))
# fmt: on


@dataclass(frozen=True)
class Operation:
    """An operation that made a non-finite value."""

    name: str
    kind: str  # NaN, Inf or -Inf
    inputs: str
    inputs_finite: bool
    module: str | None
    at: SourceLine | None
    code: str
    placed: bool  # it was given the value and put it somewhere


class OpTrace(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """`with OpTrace() as trace: model(x)`, then `trace.first` is the operation, or None."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.first: Operation | None = None
        self.first_minus_inf: Operation | None = None  # computed, but it may still end well: exp(-inf) is 0
        self.modules: list[str] = []  # paths of the module calls running now; kept by whoever runs the forward
        self._held: dict[int, Operation] = {}  # storage -> what put a non-finite value there

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.first is not None:
            return func(*args, **kwargs)
        mutable = func._schema.is_mutable
        given = list(_ranged((args, kwargs)))
        before = [(_storage(t), _kind(t)) for t in given] if mutable else None
        output = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if name not in _ALLOCATES:
            self._examine(name, before, given, (args, kwargs), output)
        return output

    def _examine(
        self, name: str, before: list[tuple[int, str | None]] | None, given: list[Tensor], arguments: Any, output: Any
    ) -> None:
        made = list(_ranged(output))
        kinds = [_kind(tensor) for tensor in made]
        if not any(kinds):
            sources = {_storage(tensor) for tensor in given}
            for tensor in made:
                if _storage(tensor) not in sources:
                    self._held.pop(_storage(tensor), None)  # the storage of a freed tensor, used again
            return
        inputs = before if before is not None else [(_storage(t), _kind(t)) for t in given]
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
        self._decide(operation, known, [kind for _, kind in bad_inputs if kind])
        given_storages = {storage for storage, _ in inputs}
        for tensor, kind in zip(made, kinds, strict=True):
            if kind and not (_storage(tensor) in given_storages and _storage(tensor) in self._held):
                self._held[_storage(tensor)] = known or operation

    def _decide(self, operation: Operation, known: Operation | None, bad_inputs: list[str]) -> None:
        if operation.kind == "-Inf" and not operation.placed and known is None:
            self.first_minus_inf = self.first_minus_inf or operation
        if operation.kind == "-Inf" or operation.placed:
            return  # maybe a mask: only what becomes of it can tell
        if known is not None and known.placed and operation.kind == "Inf" and set(bad_inputs) != {"-Inf"}:
            return  # the deliberate Inf, handed on
        self.first = known if known is not None and not known.placed else operation


def describe_kind(tensor: Tensor) -> str | None:
    """NaN, Inf or -Inf where `tensor` holds one (the worst), else None. Waits for the device."""
    return _kind(tensor) if has_range(tensor) else None


def _kind(tensor: Tensor) -> str | None:
    values = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    minimum, maximum = torch.aminmax(values.detach())
    return nonfinite_kind(float(minimum), float(maximum))


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
