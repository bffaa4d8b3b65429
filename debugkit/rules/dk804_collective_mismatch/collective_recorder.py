"""A ring buffer of this rank's collectives, and a thread that reads those of the other ranks if one does not return.

The thread also publishes the last calls and the line that the main thread is executing. A rank that is in no collective
at all (it sleeps, reads a file, waits at a breakpoint) can therefore be located as well.
"""

from __future__ import annotations

import dataclasses
import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Self

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from debugkit._torch_private import in_backward
from debugkit.distributed.collectives import ALIKE, OTHERS
from debugkit.distributed.message_store import MessageStore
from debugkit.finding import SourceLine
from debugkit.frames import raising_line, user_line
from debugkit.recorders.patches import Patches
from debugkit.rules.dk804_collective_mismatch import BACKWARD, Collective, CollectiveRecord, RankRecord, State
from debugkit.structure import tensors_in

_MADE_OF_OTHERS = ("all_gather_object", "broadcast_object_list", "gather_object", "scatter_object_list")

_REMEMBERED = 32
_TICK_S = 0.5
_ANSWER_S = 2.5  # after a failure, the time in which other ranks publish their state: a few ticks


class CollectiveRecorder:
    """Records inside the `with` block. Calls `on_stall`, once, if a call has not returned for `patience` seconds.

    Raises NotExamined without a process group.
    """

    def __init__(self, patience: float, on_stall: Callable[[CollectiveRecord], None]) -> None:
        self._store = MessageStore("collectives")
        self._patience, self._on_stall = patience, on_stall
        self._calls: deque[Collective] = deque(maxlen=_REMEMBERED)
        self._counts: dict[tuple[int, ...], int] = {}
        self._open: tuple[str, float] | None = None  # the call that has not returned yet, and its start
        self._backward_due = False
        self._state: State = "running"
        self._error = ""
        self._stall_reported = False
        self._lock = threading.Lock()
        self._patches = Patches()
        self._ended = threading.Event()
        self._main = threading.get_ident()
        self._process = os.getpid()

    def __enter__(self) -> Self:
        around = self._patches.around
        for owner in (dist, dist.distributed_c10d):
            for name in (*ALIKE, *OTHERS):
                around(owner, name, before=self._before(name), after=self._after(name))
        around(DistributedDataParallel, "forward", before=self._wrapper_called)
        around(torch.autograd, "backward", before=self._before_backward, after=self._after_backward)
        self._publish()
        threading.Thread(target=self._keep_publishing, name="debugkit collectives", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        self._ended.set()
        self._patches.__exit__(None, None, None)
        if error is not None:
            self.failed(error)
        elif self._state == "running":
            self._state = "ended"
            self._publish()

    def failed(self, error: BaseException) -> CollectiveRecord:
        """The loop raised: publish it, wait until the other ranks have published their state, and compare."""
        if self._state == "running":
            where = raising_line(error.__traceback__, through_debugkit=True)
            self._state, self._error = "raised", _first_sentence(error)
            self._publish(where)
            if self._open is not None:
                time.sleep(_ANSWER_S)
                self._report_stall()
        return self.record(compared=self._stall_reported)

    def record(self, compared: bool) -> CollectiveRecord:
        """The record of this rank, and those of the others if `compared`."""
        mine = self._own_record()
        others = [self._record_of(rank) for rank in self._store.others] if compared else []
        waited = time.monotonic() - self._open[1] if self._open is not None else 0.0
        ranks = tuple(sorted((mine, *others), key=lambda record: record.rank))
        return CollectiveRecord(mine.rank, self._store.world_size, compared, round(waited, 1), ranks)

    # Recording the calls

    def _before(self, operation: str) -> Callable[..., None]:
        def before(*args: Any, **kwargs: Any) -> None:
            if threading.get_ident() == self._main and not (self._open and self._open[0] in _MADE_OF_OTHERS):
                shape, dtype = _kind_of(args, kwargs) if operation in ALIKE else ((), "")
                self._begin(operation, _ranks_of(args, kwargs), shape, dtype)

        return before

    def _after(self, operation: str) -> Callable[..., None]:
        def after(*_: Any, **__: Any) -> None:
            if threading.get_ident() == self._main and self._open is not None and self._open[0] == operation:
                self._end()

        return after

    def _wrapper_called(self, wrapper: DistributedDataParallel, *_: Any, **__: Any) -> None:
        if torch.is_grad_enabled() and wrapper.require_backward_grad_sync:
            self._backward_due = True

    def _before_backward(self, *_: Any, **__: Any) -> None:
        if self._backward_due and not in_backward():
            self._backward_due = False
            self._begin(BACKWARD, tuple(range(self._store.world_size)), (), "")

    def _after_backward(self, *_: Any, **__: Any) -> None:
        if self._open is not None and self._open[0] == BACKWARD and not in_backward():
            self._end()

    def _begin(self, operation: str, group: tuple[int, ...], shape: tuple[int, ...], dtype: str) -> None:
        number = self._counts.get(group, 0)
        self._counts[group] = number + 1
        with self._lock:
            self._calls.append(Collective(operation, group, number, shape, dtype, user_line(), done=False))
        self._open = (operation, time.monotonic())

    def _end(self) -> None:
        with self._lock:
            self._calls.append(dataclasses.replace(self._calls.pop(), done=True))
        self._open = None

    # Exchanging the records

    def _keep_publishing(self) -> None:
        while not self._ended.wait(_TICK_S):
            try:
                self._publish()
                if self._open is not None and time.monotonic() - self._open[1] > self._patience:
                    self._report_stall()
            except Exception:
                return  # the process group no longer exists, so no rank can read this

    def _report_stall(self) -> None:
        if not self._stall_reported:
            self._stall_reported = True
            self._on_stall(self.record(compared=True))

    def _publish(self, at: SourceLine | None = None) -> None:
        if os.getpid() == self._process:  # not in a forked data-loader worker
            self._store.put("record", dataclasses.asdict(self._own_record(at)))

    def _own_record(self, at: SourceLine | None = None) -> RankRecord:
        frame = sys._current_frames().get(self._main)
        with self._lock:
            calls = tuple(self._calls)
        at = at or (user_line(frame) if frame else None)
        return RankRecord(self._store.rank, self._state, calls, at, self._error)

    def _record_of(self, rank: int) -> RankRecord:
        message = self._store.get("record", rank)
        if message is None:
            return RankRecord(rank, "silent")
        calls = [
            Collective(**{**c, "group": tuple(c["group"]), "shape": tuple(c["shape"]), "at": _line(c["at"])})
            for c in message["calls"]
        ]
        return RankRecord(rank, message["state"], tuple(calls), _line(message["stands_at"]), message["error"])


def _line(fields: dict[str, Any] | None) -> SourceLine | None:
    return None if fields is None else SourceLine(**fields)


def _kind_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[int, ...], str]:
    tensor = next((tensor for _, tensor in tensors_in((args, kwargs))), None)
    return ((), "") if tensor is None else (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


def _ranks_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
    group = next((each for each in (*args, *kwargs.values()) if isinstance(each, dist.ProcessGroup)), None)
    return tuple(range(dist.get_world_size()) if group is None else dist.get_process_group_ranks(group))


def _first_sentence(error: BaseException) -> str:
    """The exception without the advice that torch appends to its message."""
    text = re.split(r"\.\s|\n", str(error), maxsplit=1)[0]
    return f"{type(error).__name__}: {text[:160]}"
