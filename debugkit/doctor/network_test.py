"""Test whether the ranks reach one another, on gloo, and on NCCL if there are GPUs.

    debugkit doctor --distributed                                   # ranks on this machine, started by the command
    torchrun --nnodes 2 … --no-python debugkit doctor --distributed # the same test as a rank of any launcher

`debugkit.doctor.rank_test` is what each rank runs; here the ranks are started and their results are collected.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from debugkit.doctor import Health, Line
from debugkit.doctor.rank_test import SECONDS, RankResult, present_ranks, run_test, wait_until
from debugkit.rule_text import listed

_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_GRACE_S = 60.0  # for the import of torch on a busy machine, and for ranks that wait for the result of this one


def is_rank(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a launcher (torchrun, or srun with these variables) has started this process as one of several."""
    return all(name in environment for name in _NEEDED)


def answers_of_all(seconds: float = SECONDS, environment: Mapping[str, str] = os.environ) -> list[Line]:
    """Run the test as the rank that the environment names.

    Returns the lines of all ranks on the lowest rank that is present, and on the others their own line if it failed.
    """
    rank, world_size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
    own, store = run_test(rank, world_size, seconds, environment)
    if store is None:
        return [_line(own)]
    try:
        store.set(f"result/{rank}", json.dumps(asdict(own)))
        if rank != min(present_ranks(store, world_size)):
            wait_until(lambda: store.check(["collected"]), seconds)
            return [] if own.fine else [_line(own)]
        wait_until(lambda: all(store.check([f"result/{r}"]) for r in present_ranks(store, world_size)), seconds)
        lines = [_line(_result_of(store, each)) for each in range(world_size)]
        store.set("collected", "1")
    except dist.DistError:
        return [_line(own)]  # the rank that served the store has exited
    if not environment.get("TORCHELASTIC_USE_AGENT_STORE"):
        time.sleep(0.5)  # this process serves the store, and other ranks are still reading
    return lines


def network(
    seconds: float = SECONDS,
    ranks: int | None = None,
    command: Callable[[int], Sequence[str]] | None = None,
) -> Iterator[Line]:
    """Start `ranks` processes on this machine (one per GPU, at least two) and yield the line of each result.

    `command(rank)` is the command that a rank runs.
    """
    ranks = ranks or max(2, torch.cuda.device_count())
    command = command or (lambda _: [sys.executable, "-m", "debugkit.doctor.rank_test"])
    shared = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    shared |= {"DEBUGKIT_NETWORK_SECONDS": str(seconds), "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            command(rank),
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    deadline = time.monotonic() + 3 * seconds + _GRACE_S
    try:
        for rank, process in enumerate(started):
            yield _outcome(rank, process, deadline)
            deadline = min(deadline, time.monotonic() + seconds / 2 + 5)  # one has ended, so the others should too
    finally:
        for process in started:
            process.kill()
            process.communicate()


def verdict(lines: Sequence[Line]) -> str:
    """One sentence that summarises the lines of all ranks."""
    failed = [line.what.split()[1] for line in lines if line.health is Health.BROKEN]
    if not failed:
        return f"All {len(lines)} ranks reach one another."
    return f"{len(failed)} of {len(lines)} ranks failed: {listed(failed)}. Start with the first ✗ above."


def _line(result: RankResult) -> Line:
    health = Health.FINE if result.fine else Health.BROKEN
    return Line(f"rank {result.rank} on {result.host}"[:24], result.seen, health, result.advice)


def _outcome(rank: int, process: subprocess.Popen[str], deadline: float) -> Line:
    """The result that a rank printed, or how it ended without printing one."""
    try:
        printed, errors = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return Line(f"rank {rank}", "no result: it neither exited nor printed anything", Health.BROKEN)
    for text in printed.splitlines():
        if text.startswith("{"):
            return _line(RankResult(**json.loads(text)))
    if process.returncode < 0:
        name = signal.Signals(-process.returncode).name
        advice = "SIGKILL: usually out of memory (see dmesg). SIGSEGV: a library or driver does not match."
        return Line(f"rank {rank}", f"ended by {name} before it had a result", Health.BROKEN, advice)
    last = (errors.strip().splitlines() or [f"exit code {process.returncode} without a message"])[-1]
    return Line(f"rank {rank}", last[:160], Health.BROKEN)


def _result_of(store: Store, rank: int) -> RankResult:
    if store.check([f"result/{rank}"]):
        return RankResult(**json.loads(store.get(f"result/{rank}")))
    if store.check([f"here/{rank}"]):
        host = store.get(f"here/{rank}").decode()
        return RankResult(rank, host, False, "connected, but gave no result", "Look at the end of the log of its node.")
    return RankResult(rank, "?", False, "did not connect", "Check in the log of its node whether it was started.")


def _free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
        return port
