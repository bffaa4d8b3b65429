"""Runs work in several processes that form a group, and ends them as soon as all of them wait.

The processes are forks of this one. They find each other through a file and communicate over the loopback interface.
How long that takes on a busy machine decides nothing: each process counts how often it was asked and had not computed,
and no time-out applies.
"""

from __future__ import annotations

import gc
import mmap
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # DistributedDataParallel imports it: once, before the fork
import torch.distributed as dist

BEAT_S = 0.05
"""How often each process looks whether it has computed."""
WORK = 0.02
"""Below this part of one processor's time between two beats, a process has not computed."""
IDLE_BEATS = 30
"""A process that has not computed for this many beats waits."""
LONGEST_S = 80.0

Report = Callable[[Any], None]
"""Stores one more result of a process, where it survives the process."""
Line = tuple[str, int, str]
"""File, line number and function of a call."""


@dataclass
class Ended:
    """What one process has reported, and how it ended: `finished`, `raised …`, `aborted` or `still waiting`.

    `stack` are the calls in which it waits, or in which it raised, the innermost last.
    """

    how: str
    results: list[Any] = field(default_factory=list)
    stack: list[Line] = field(default_factory=list)


def in_processes(work: Callable[[int, Report], None], count: int) -> list[Ended]:
    """Run `work(rank, report)` in `count` processes of one group; ends them if none computes any more."""
    idle = memoryview(mmap.mmap(-1, 8 * count)).cast("d")
    with tempfile.TemporaryDirectory() as folder:
        homes = [Path(folder) / str(rank) for rank in range(count)]
        sys.stdout.flush()
        gc.collect()
        children: list[int] = []
        dead: set[int] = set()
        try:
            for rank, home in enumerate(homes):
                home.mkdir()
                child = os.fork()
                if child == 0:
                    _be_a_rank(work, rank, count, Path(folder) / "meeting", home, idle)
                children.append(child)
            _wait_for(homes, idle, children, dead)
        finally:
            for rank, child in enumerate(children):
                if rank not in dead:
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
        return [_outcome(home, rank in dead) for rank, home in enumerate(homes)]


def _outcome(home: Path, died: bool) -> Ended:
    results = [torch.load(path) for path in sorted(home.glob("result*.pt"))]
    if (home / "end").exists():
        how, stack = torch.load(home / "end")
        return Ended(how, results, stack)
    waits = home / "waits"
    return Ended("aborted" if died else "still waiting", results, torch.load(waits) if waits.exists() else [])


def _wait_for(homes: list[Path], idle: memoryview, children: list[int], dead: set[int]) -> None:
    """Return when every process has finished, or when none of them computes: a busy machine is not a hang.

    Adds to `dead` the ranks whose process has ended; none ends by itself.
    """
    began = time.monotonic()
    while time.monotonic() - began < LONGEST_S and not all((home / "end").exists() for home in homes):
        dead |= {rank for rank, child in enumerate(children) if rank not in dead and os.waitpid(child, os.WNOHANG)[0]}
        if all(rank in dead or idle[rank] >= IDLE_BEATS for rank in range(len(homes))):
            return
        time.sleep(0.02)


def _be_a_rank(
    work: Callable[[int, Report], None], rank: int, count: int, meeting: Path, home: Path, idle: memoryview
) -> None:
    """Work, write how it ended, and stay alive: one that exits looks like a broken connection, not like a hang."""
    gc.freeze()
    torch.set_num_threads(1)
    threading.Thread(target=_count_idle_beats, args=(rank, idle, home, threading.get_ident()), daemon=True).start()
    reported = 0

    def report(result: Any) -> None:
        nonlocal reported
        _save(result, home / f"result{reported:03d}.pt")
        reported += 1

    try:
        join(rank, count, meeting)
        work(rank, report)
        end: tuple[str, list[Line]] = ("finished", [])
    except Exception as error:
        text = str(error).splitlines()[0][:110] if str(error) else ""
        end = (f"raised {type(error).__name__}: {text}", _lines(traceback.extract_tb(error.__traceback__)))
    _save(end, home / "end")
    time.sleep(2 * LONGEST_S)
    os._exit(0)


def _count_idle_beats(rank: int, idle: memoryview, home: Path, worker: int) -> None:
    """Count the beats since this process last computed, without this thread's own time.

    A process that waits for its turn on a busy machine counts none: its other threads run between two beats.
    """
    beats, used = 0, 0.0
    while True:
        time.sleep(BEAT_S)
        now = time.process_time() - time.thread_time()
        beats = beats + 1 if now - used < WORK * BEAT_S else 0
        used = now
        if beats == IDLE_BEATS:
            _save(_lines(traceback.extract_stack(sys._current_frames()[worker])), home / "waits")
        idle[rank] = beats


def _lines(frames: traceback.StackSummary) -> list[Line]:
    return [(frame.filename, frame.lineno or 0, frame.name) for frame in frames]


def _save(value: Any, path: Path) -> None:
    """Write it so that a reader never sees a part of it."""
    torch.save(value, path.with_suffix(".part"))
    path.with_suffix(".part").rename(path)


def join(rank: int, count: int, meeting: Path, patience_s: float = 2 * LONGEST_S) -> None:
    """Join the group of `count` processes that meet in this file. A collective raises after `patience_s`."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    patience = timedelta(seconds=patience_s)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=count, timeout=patience)
