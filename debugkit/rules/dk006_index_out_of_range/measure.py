"""Compares the indices of every lookup with the size of its table, before the lookup runs.

On a GPU it cannot wait: an index out of range makes the device unusable for the process, and every later call raises.
In a loop, comparing each lookup would be expensive. There a lookup that raised is read from the traceback.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from debugkit.finding import NotExamined, SourceLine
from debugkit.frames import raising_line, user_line
from debugkit.interventions.batch_roles import is_index
from debugkit.recorders.function_calls import FunctionObserver
from debugkit.recorders.function_probe import FunctionProbe
from debugkit.rules.dk006_index_out_of_range import IndexRange, IndexRanges
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in

_EMBEDDINGS = ("embedding", "embedding_bag")
_CLASSIFICATIONS = ("cross_entropy", "nll_loss")
_LOOKUPS = frozenset({*_EMBEDDINGS, *_CLASSIFICATIONS, "gather", "one_hot"})
_TABLES = {"embedding": "weight", "cross_entropy": "target", "nll_loss": "target"}
"""Functions written in Python, whose frames hold their arguments: the name of the second one."""
_MOST_SAMPLES = 5
_Lookup = tuple[Tensor, int, Tensor | None, int | None]
"""The indices of a call, the number of rows, the table, and the ignored label."""


class IndexRangesProbe(FunctionProbe[IndexRanges, "_Calls"]):
    """Observes each step. On a GPU it waits for the device at each lookup. Under `watch()` it attaches nothing."""

    partial = True

    def __init__(self, setup: TrainingSetup) -> None:
        calls = _Calls(setup)
        super().__init__(setup, calls, calls.running)
        self._last = IndexRanges(())

    @property
    def _in_a_loop(self) -> bool:
        return self.setup.batch is None

    def __enter__(self) -> Self:
        return self if self._in_a_loop else super().__enter__()

    def end_step(self, _step: int, /) -> None:
        self._last = IndexRanges(tuple(self.calls.lookups))
        self.calls.lookups.clear()

    @torch.no_grad()
    def loop_failed(self) -> None:
        error = sys.exception()
        if isinstance(error, IndexError):
            self.calls.read_traceback(error.__traceback__)
        self._last = IndexRanges(tuple(self.calls.lookups))

    def observed(self) -> IndexRanges:
        if self._in_a_loop and not self._last.lookups:
            raise NotExamined("Every lookup is compared by debugkit.check(); in a loop, one that raised is.")
        return self._last


class _Calls(FunctionObserver):
    functions = _LOOKUPS

    may_stop = True

    def __init__(self, setup: TrainingSetup) -> None:
        self.setup = setup
        self.running: list[str] = []
        self.lookups: dict[IndexRange, None] = {}

    @torch.no_grad()
    def before(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], /) -> None:
        lookup = _lookup(name, args, kwargs)
        if lookup is not None:
            self._record(name, lookup, user_line())

    def read_traceback(self, innermost: TracebackType | None) -> None:
        """Record the lookup that raised, if its tensors are on the CPU. PyTorch's function still holds them."""
        at = raising_line(innermost, through_debugkit=True)  # a function mode is between
        for frame, _ in traceback.walk_tb(innermost):
            name, given = frame.f_code.co_name, frame.f_locals
            if frame.f_code.co_filename == F.__file__ and name in _TABLES:
                tensors = [given.get("input"), given.get(_TABLES[name])]
                lookup = _lookup(name, tensors, {"ignore_index": given.get("ignore_index", -100)})
                if lookup is not None and lookup[0].device.type == "cpu":
                    self._record(name, lookup, at)

    def _record(self, name: str, lookup: _Lookup, at: SourceLine | None) -> None:
        indices, rows, table, ignored = lookup
        found = indices.detach()
        counted = found if ignored is None else found[found != ignored]
        if counted.numel() == 0:
            return
        lowest, highest = (int(value) for value in torch.stack(torch.aminmax(counted)).tolist())
        seen = IndexRange(
            operation=name,
            rows=rows,
            lowest=lowest,
            highest=highest,
            parameter=self.setup.parameter_paths.get(id(table)),
            module=self.running[-1] if self.running else None,
            ignored=ignored,
            at=at,
        )
        if seen.fits:
            self.lookups[seen] = None
            return
        wrong = (found < 0) | (found >= rows)
        wrong &= found != ignored if ignored is not None else True
        self.lookups[_with_samples(seen, wrong, _entry_holding(found, self.setup))] = None
        if found.device.type == "cuda":
            raise IndexError(f"index out of range in self: {highest if highest >= rows else lowest} of {rows} rows")


def _lookup(name: str, args: Any, kwargs: Any) -> _Lookup | None:
    given = [*args, *(kwargs[key] for key in ("input", "weight", "target", "dim", "index") if key in kwargs)]
    if name in _EMBEDDINGS and len(given) > 1 and _is_lookup(given[0], given[1]):
        return given[0], given[1].shape[0], given[1], None
    if name in _CLASSIFICATIONS and len(given) > 1 and _is_lookup(given[1], given[0]):
        ignored = kwargs.get("ignore_index", args[4] if len(args) > 4 else -100)
        return given[1], given[0].shape[1 if given[0].ndim > 1 else 0], None, ignored
    if name == "gather" and len(given) > 2 and isinstance(given[1], int) and _is_lookup(given[2], given[0]):
        return given[2], given[0].shape[given[1]], None, None
    if name == "one_hot" and given and isinstance(given[0], Tensor):
        classes = kwargs.get("num_classes", args[1] if len(args) > 1 else -1)
        return (given[0], classes, None, None) if classes > 0 else None
    return None


def _is_lookup(indices: Any, table: Any) -> bool:
    return isinstance(indices, Tensor) and isinstance(table, Tensor) and is_index(indices) and table.ndim > 0


def _with_samples(seen: IndexRange, wrong: Tensor, entry: str | None) -> IndexRange:
    samples = sorted({int(place[0]) for place in wrong.nonzero().tolist() if place})
    return IndexRange(
        operation=seen.operation,
        rows=seen.rows,
        lowest=seen.lowest,
        highest=seen.highest,
        beyond=int(wrong.sum()),
        samples=tuple(samples[:_MOST_SAMPLES]) if entry else (),
        parameter=seen.parameter,
        module=seen.module,
        entry=entry,
        ignored=seen.ignored,
        at=seen.at,
    )


def _entry_holding(indices: Tensor, setup: TrainingSetup) -> str | None:
    """The path of the tensor in the batch that has these values, possibly in another shape."""
    for path, tensor in tensors_in(setup.batch):
        if is_index(tensor) and tensor.numel() == indices.numel():
            same = tensor.reshape(-1).to(indices.device) == indices.reshape(-1)
            if bool(same.all()):
                return path
    return None
