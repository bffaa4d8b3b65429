"""trace_batches: print weights, inputs and outputs of every module for chosen batches of a running loop."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Any, Self

from torch import nn
from torch.utils.hooks import RemovableHandle

from debugkit.step_replay.call_frames import FrameRecorder, render_frames
from debugkit.step_replay.nonfinite import Frame


class TracedEnough(Exception):  # noqa: N818 - the wanted end, not an error
    """Raised by `trace_batches` after the batch that `abort_after` names."""


def trace_batches(
    model: nn.Module,
    batches: Collection[int] = (0,),
    *,
    abort_after: int | None = None,
    write: Callable[[str], object] | None = None,
) -> BatchTrace:
    """A context manager that prints the absolute minimum and maximum of every tensor in the chosen batches.

    The tensors are the weights, inputs and outputs of every module. Batches are the calls of the model, counted from 0.
    With `abort_after=3` TracedEnough is raised after batch 3, which is enough to compare two runs. `write` receives the
    text of a batch; the default writes to stdout. `.frames` keeps the module calls by batch.

    >>> model = nn.Sequential(nn.ReLU())
    >>> import torch
    >>> with trace_batches(model, [1], write=print) as trace:
    ...     for value in (1.0, -2.0):
    ...         _ = model(torch.tensor([value]))
    batch 1
    abs min  abs max  tensor
                      0  ReLU
    2.00e+00 2.00e+00 input
    0.00e+00 0.00e+00 output
                      (root)  Sequential
    2.00e+00 2.00e+00 input
    0.00e+00 0.00e+00 output
    """
    return BatchTrace(model, frozenset(batches), abort_after, write or _to_stdout)


class BatchTrace:
    """What `trace_batches` returns: a context manager. `frames` maps a batch number to its module calls."""

    def __init__(
        self, model: nn.Module, batches: frozenset[int], abort_after: int | None, write: Callable[[str], object]
    ) -> None:
        self.frames: dict[int, tuple[Frame, ...]] = {}
        self._model = model
        self._batches = batches
        self._abort_after = abort_after
        self._write = write
        self._batch = 0
        self._recorder: FrameRecorder | None = None
        self._ending: RemovableHandle | None = None
        self._handles: list[RemovableHandle] = []

    def __enter__(self) -> Self:
        self._handles.append(self._model.register_forward_pre_hook(self._begin))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop_recording()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _begin(self, model: nn.Module, _args: Any) -> None:
        self._stop_recording()  # of a batch that raised
        if self._batch in self._batches:
            self._recorder = FrameRecorder(model, last=None)
            self._recorder.__enter__()
        if self._batch in self._batches or self._batch == self._abort_after:
            self._ending = model.register_forward_hook(self._end)  # last, so that the root's own frame is there
        else:
            self._batch += 1

    def _end(self, _model: nn.Module, _args: Any, _output: Any) -> None:
        batch = self._batch
        self._batch += 1
        recorded = self._recorder
        self._stop_recording()
        if recorded is not None:
            self.frames[batch] = tuple(recorded.frames)
            self._write(f"batch {batch}\n{render_frames(self.frames[batch])}")
        if batch == self._abort_after:
            raise TracedEnough(f"Batch {batch} is traced, and abort_after={batch} asked to stop there.")

    def _stop_recording(self) -> None:
        if self._ending is not None:
            self._ending.remove()
            self._ending = None
        if self._recorder is not None:
            self._recorder.__exit__()
            self._recorder = None


def _to_stdout(text: str) -> None:
    sys.stdout.write(text + "\n")
