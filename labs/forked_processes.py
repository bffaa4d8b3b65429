"""Runs a function in several processes that communicate with `torch.distributed`, for the probes of labs.

The processes are forks of the sandboxed child: nothing has to be imported again. They find each other through a file,
communicate over the loopback interface, and are killed as soon as all of them have finished or wait. How long that
takes on a busy machine decides nothing: each process counts how often it was asked and had not computed.
"""

from __future__ import annotations

import gc
import mmap
import os
import re
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

BEAT_S = 0.05
"""How often each process looks whether it has computed."""
WORK = 0.02
"""Below this part of one processor's time between two beats, a process has not computed."""
IDLE_BEATS = 30
"""A process that has not computed for so many beats waits."""
LONGEST_S = 80.0

FINISHED, WAITING, ABORTED = "finished", "still waiting", "aborted"


def run_in_processes(work: Callable[[int], Any], count: int = 2) -> list[dict[str, Any]]:
    """Call `work(rank)` in `count` processes that have joined a group, and return a result for each.

    `ended` is FINISHED, WAITING, ABORTED or `raised …`; `at` is the line of policy.py that raised; `returned` is what
    `work` returned, tensors and plain data, or None.
    """
    idle = memoryview(mmap.mmap(-1, 8 * count)).cast("d")
    with tempfile.TemporaryDirectory() as folder:
        meeting = Path(folder) / "meeting"
        notes = [Path(folder) / f"rank{rank}" for rank in range(count)]
        sys.stdout.flush()
        gc.collect()
        children: list[int] = []
        dead: set[int] = set()
        try:
            for rank in range(count):
                child = _fork()
                if child == 0:
                    _be_a_rank(work, rank, count, meeting, notes[rank], idle)
                children.append(child)
            _wait_for(notes, idle, children, dead)
        finally:
            for rank, child in enumerate(children):
                if rank not in dead:
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
        return [
            torch.load(note)
            if note.exists()
            else {"ended": ABORTED if rank in dead else WAITING, "at": "", "returned": None}
            for rank, note in enumerate(notes)
        ]


def _fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # from Python 3.12 on, of threads: torch's have nothing to do
        return os.fork()


def _wait_for(notes: list[Path], idle: memoryview, children: list[int], dead: set[int]) -> None:
    """Return when every process has finished, or when none of them computes: a busy machine is not a hang.

    Adds to `dead` the ranks whose process has ended; none ends by itself.
    """
    began = time.monotonic()
    while time.monotonic() - began < LONGEST_S and not all(note.exists() for note in notes):
        dead |= {rank for rank, child in enumerate(children) if rank not in dead and os.waitpid(child, os.WNOHANG)[0]}
        if all(rank in dead or idle[rank] >= IDLE_BEATS for rank in range(len(notes))):
            return
        time.sleep(0.02)


def _be_a_rank(work: Callable[[int], Any], rank: int, count: int, meeting: Path, note: Path, idle: memoryview) -> None:
    """Work, write the result, and stay alive: a process that exits looks like a broken connection, not like a hang."""
    gc.freeze()
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    threading.Thread(target=_count_idle_beats, args=(rank, idle), daemon=True).start()
    told: dict[str, Any] = {"ended": FINISHED, "at": "", "returned": None}
    try:
        patience = timedelta(seconds=2 * LONGEST_S)
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=count, timeout=patience)
        told["returned"] = work(rank)
    except Exception as error:
        told["ended"] = f"raised {type(error).__name__}: {_first_sentence(error)}"
        lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith("policy.py")]
        told["at"] = f"policy.py:{lines[-1].lineno}  {lines[-1].line}" if lines else ""
    torch.save(told, note.with_suffix(".part"))
    note.with_suffix(".part").rename(note)
    time.sleep(2 * LONGEST_S)
    os._exit(0)


def _count_idle_beats(rank: int, idle: memoryview) -> None:
    """Count the beats since this process last computed, without this thread's own time.

    A process that waits for its turn on a busy machine counts none: its other threads run between two beats.
    """
    used = 0.0
    while True:
        time.sleep(BEAT_S)
        now = time.process_time() - time.thread_time()
        idle[rank] = idle[rank] + 1 if now - used < WORK * BEAT_S else 0
        used = now


def _first_sentence(error: Exception) -> str:
    text = re.sub(r"^\[[^]]*\]\s*", "", str(error))  # gloo's messages start with its source file
    text = re.sub(r" \[[\d.]+\]:\d+", "", text)  # and name a port, another one each time
    return re.split(r"\. |\n", text)[0][:110]
