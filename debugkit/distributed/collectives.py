"""A ring buffer of this rank's collectives, and a thread that asks the other ranks' when one does not come back.

The thread leaves a letter with the last calls and the line at which the main thread stands, so that a rank which is in
no collective at all (it sleeps, reads a file, waits at a breakpoint) can be found as well.
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

from debugkit.distributed.mailbox import Mailbox
from debugkit.finding import SourceLine
from debugkit.frames import is_users, user_line
from debugkit.monitor.patches import Patches
from debugkit.observations.collectives import Collective, CollectiveRecord, RankRecord, State
from debugkit.structure import tensors_in

ALIKE = ("all_reduce", "broadcast", "reduce", "all_gather_into_tensor", "reduce_scatter_tensor")
"""Calls whose tensor must have one shape and dtype on every rank."""
OTHERS = (
    *("all_gather", "all_gather_object", "all_to_all", "all_to_all_single", "barrier", "broadcast_object_list"),
    *("gather", "gather_object", "monitored_barrier", "reduce_scatter", "scatter", "scatter_object_list"),
)
_MADE_OF_OTHERS = ("all_gather_object", "broadcast_object_list", "gather_object", "scatter_object_list")
BACKWARD = "backward of DistributedDataParallel"

_REMEMBERED = 32
_TICK_S = 0.5
_ANSWER_S = 2.5  # how long after a failure other ranks have to say where they stand: some ticks


class CollectiveRecorder:
    """Records while inside the `with` block. `on_stall` hears, once, of a call that has not come back for `patience` s.

    Raises NotExamined where there is no process group.
    """

    def __init__(self, patience: float, on_stall: Callable[[CollectiveRecord], None]) -> None:
        self._mail = Mailbox("collectives")
        self._patience, self._on_stall = patience, on_stall
        self._calls: deque[Collective] = deque(maxlen=_REMEMBERED)
        self._counts: dict[tuple[int, ...], int] = {}
        self._open: tuple[str, float] | None = None  # the call that has not come back, and since when
        self._backward_due = False
        self._state: State = "running"
        self._error = ""
        self._told = False
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
        self._post()
        threading.Thread(target=self._keep_posting, name="debugkit collectives", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        self._ended.set()
        self._patches.__exit__(None, None, None)
        if error is not None:
            self.failed(error)
        elif self._state == "running":
            self._state = "ended"
            self._post()

    def failed(self, error: BaseException) -> CollectiveRecord:
        """The loop raised: say so to the others, give them a moment to say where they stand, and compare."""
        if self._state == "running":
            where = _raised_at(error)
            self._state, self._error = "raised", _first_sentence(error)
            self._post(where)
            if self._open is not None:
                time.sleep(_ANSWER_S)
                self._tell()
        return self.record(compared=self._told)

    def record(self, compared: bool) -> CollectiveRecord:
        """This rank's record, with the others' if `compared`."""
        mine = self._mine()
        others = [self._letter_of(rank) for rank in self._mail.others] if compared else []
        waited = time.monotonic() - self._open[1] if self._open is not None else 0.0
        ranks = tuple(sorted((mine, *others), key=lambda record: record.rank))
        return CollectiveRecord(mine.rank, self._mail.world_size, compared, round(waited, 1), ranks)

    # The calls

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
        if self._backward_due and torch._C._current_graph_task_id() == -1:
            self._backward_due = False
            self._begin(BACKWARD, tuple(range(self._mail.world_size)), (), "")

    def _after_backward(self, *_: Any, **__: Any) -> None:
        if self._open is not None and self._open[0] == BACKWARD and torch._C._current_graph_task_id() == -1:
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

    # The letters

    def _keep_posting(self) -> None:
        while not self._ended.wait(_TICK_S):
            try:
                self._post()
                if self._open is not None and time.monotonic() - self._open[1] > self._patience:
                    self._tell()
            except Exception:
                return  # the process group is gone, and with it whoever could read this

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            self._on_stall(self.record(compared=True))

    def _post(self, at: SourceLine | None = None) -> None:
        if os.getpid() == self._process:  # a worker that was forked in between has no say
            self._mail.post("record", dataclasses.asdict(self._mine(at)))

    def _mine(self, at: SourceLine | None = None) -> RankRecord:
        frame = sys._current_frames().get(self._main)
        with self._lock:
            calls = tuple(self._calls)
        return RankRecord(self._mail.rank, self._state, calls, at or (user_line(frame) if frame else None), self._error)

    def _letter_of(self, rank: int) -> RankRecord:
        letter = self._mail.read("record", rank)
        if letter is None:
            return RankRecord(rank, "silent")
        calls = [
            Collective(**{**c, "group": tuple(c["group"]), "shape": tuple(c["shape"]), "at": _line(c["at"])})
            for c in letter["calls"]
        ]
        return RankRecord(rank, letter["state"], tuple(calls), _line(letter["stands_at"]), letter["error"])


def _line(written: dict[str, Any] | None) -> SourceLine | None:
    return None if written is None else SourceLine(**written)


def _kind_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[int, ...], str]:
    tensor = next((tensor for _, tensor in tensors_in((args, kwargs))), None)
    return ((), "") if tensor is None else (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


def _ranks_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
    group = next((each for each in (*args, *kwargs.values()) if isinstance(each, dist.ProcessGroup)), None)
    return tuple(range(dist.get_world_size()) if group is None else dist.get_process_group_ranks(group))


def _raised_at(error: BaseException) -> SourceLine | None:
    """The innermost line of the user's program in the traceback; our own frames around torch's calls do not count."""
    found, traceback = None, error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if is_users(code.co_filename):
            found = SourceLine(code.co_filename, traceback.tb_lineno, code.co_name)
        traceback = traceback.tb_next
    return found


def _first_sentence(error: BaseException) -> str:
    """What was raised, without the advice that torch appends to it."""
    text = re.split(r"\.\s|\n", str(error), maxsplit=1)[0]
    return f"{type(error).__name__}: {text[:160]}"
