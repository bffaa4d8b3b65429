"""The network test of one rank: who is present, who responds, and whose sums are correct.

Three questions, each with its own timeout, so that the result names a rank and not only a duration: a roll call through
the store, `monitored_barrier` over gloo, and `all_reduce` over gloo and, with GPUs, NCCL. `python -m
debugkit.doctor.rank_test` runs it in a process that `debugkit.doctor.network_test` has started.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch does not list it as exported
from torch.distributed.distributed_c10d import PrefixStore, Store

from debugkit.rule_text import numbered

SECONDS = 60.0
"""How long a rank waits for the others at each of the three questions."""


@dataclass(frozen=True, slots=True)
class RankResult:
    """The result of one rank."""

    rank: int
    host: str
    fine: bool
    seen: str
    advice: str = ""


class _Failed(Exception):  # noqa: N818 - a result of the test, not an error in it
    """A question without a correct answer; the arguments are what happened and what to do."""


def run_test(
    rank: int, world_size: int, seconds: float, environment: Mapping[str, str]
) -> tuple[RankResult, Store | None]:
    """The result of this rank, up to the first question that fails, and the store if it could be opened."""
    host, store = socket.gethostname(), None
    try:
        store = _open_store(rank, world_size, seconds, environment)
        store.set(f"here/{rank}", host)
        _roll_call(store, world_size, seconds)
        passed = [_gloo(store, rank, world_size, seconds)]
        if torch.cuda.is_available() and dist.is_nccl_available():
            passed.append(_nccl(world_size, int(environment.get("LOCAL_RANK", rank)), seconds))
    except _Failed as failure:
        return RankResult(rank, host, False, *failure.args), store
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return RankResult(rank, host, True, f"OK: {', '.join(passed)}"), store


def present_ranks(store: Store, world_size: int) -> list[int]:
    """The ranks that have opened the store."""
    return [rank for rank in range(world_size) if store.check([f"here/{rank}"])]


def wait_until(true: Callable[[], bool], seconds: float) -> bool:
    """Whether `true()` returns True within `seconds`."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _open_store(rank: int, world_size: int, seconds: float, environment: Mapping[str, str]) -> Store:
    address, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    with_agent = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    try:
        store = TCPStore(
            address,
            port,
            world_size,
            is_master=rank == 0 and not with_agent,
            timeout=timedelta(seconds=seconds),
            wait_for_workers=False,  # waiting here would not name the missing rank
        )
    except (dist.DistError, OSError, RuntimeError) as error:
        raise _Failed(
            f"no connection to {address}:{port} within {seconds:g} s ({type(error).__name__}): rank 0 is missing",
            "Check that the node of rank 0 is running, that MASTER_ADDR resolves to it from this node, and that "
            "MASTER_PORT is open and unused.",
        ) from error
    run = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    return PrefixStore(f"debugkit/network/{run}", store)


def _roll_call(store: Store, world_size: int, seconds: float) -> None:
    """Wait until every rank is present. Raises _Failed with the missing ones."""
    if not wait_until(lambda: len(present_ranks(store, world_size)) == world_size, seconds):
        present = present_ranks(store, world_size)
        missing = [rank for rank in range(world_size) if rank not in present]
        raise _Failed(
            f"waited {seconds:g} s for {numbered('rank', missing)}, which did not connect",
            "Check in the log of its node whether it was started; --nnodes, --node-rank and --nproc-per-node must "
            "agree on all nodes.",
        )


def _gloo(store: Store, rank: int, world_size: int, seconds: float) -> str:
    limit = timedelta(seconds=seconds)
    try:
        dist.init_process_group(
            "gloo",
            store=PrefixStore("gloo", store),
            rank=rank,
            world_size=world_size,
            timeout=limit,
        )
        dist.monitored_barrier(timeout=limit, wait_all_ranks=True)
        total = torch.tensor([rank + 1.0])
        dist.all_reduce(total)
    except RuntimeError as error:
        raise _Failed(
            f"gloo: {_who_failed(str(error))}",
            "The ranks reach the store but not each other: set GLOO_SOCKET_IFNAME to a network interface that "
            "connects them.",
        ) from error
    return _summed("gloo", float(total), world_size)


def _nccl(world_size: int, local_rank: int, seconds: float) -> str:
    devices = torch.cuda.device_count()
    if local_rank >= devices:
        raise _Failed(
            f"NCCL: local rank {local_rank} has no GPU; this node has {devices}",
            "Start as many ranks per node as it has GPUs, and check CUDA_VISIBLE_DEVICES.",
        )
    try:
        torch.cuda.set_device(local_rank)
        group = dist.new_group(backend="nccl", timeout=timedelta(seconds=seconds))
        total = torch.tensor([dist.get_rank() + 1.0], device="cuda")
        work = dist.all_reduce(total, group=group, async_op=True)
        if not wait_until(work.is_completed, seconds):
            raise RuntimeError("all_reduce did not return")
        value = float(total)
    except RuntimeError as error:
        first = str(error).partition("\n")[0]
        raise _Failed(
            f"NCCL: {first[:120]}",
            "Run it again with NCCL_DEBUG=INFO: the last line before it stops names the interface or the peer.",
        ) from error
    return _summed("NCCL", value, world_size)


def _summed(backend: str, total: float, world_size: int) -> str:
    expected = world_size * (world_size + 1) / 2
    if total != expected:
        raise _Failed(
            f"{backend}: all_reduce returned {total:g}, but {expected:g} is correct",
            "Do not train on this machine until the sums are correct.",
        )
    return f"{backend} sums over {world_size} ranks"


def _who_failed(message: str) -> str:
    """The first line of an error; monitored_barrier names the missing ranks only in the error of rank 0."""
    if "successfully reached monitoredBarrier" in message:
        return "reached the barrier, but rank 0 ended it: its line names the missing rank"
    first = (message.splitlines() or ["no message"])[0]
    return re.sub(r"^(\[[^]]*\]:?\s*)+", "", first)[:160]


def _main() -> int:
    """Run the test as a rank that `network` has started, and print the result as JSON."""
    seconds = float(os.environ.get("DEBUGKIT_NETWORK_SECONDS", SECONDS))
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    own, store = run_test(rank, world_size, seconds, os.environ)
    sys.stdout.write(f"{json.dumps(asdict(own))}\n")
    sys.stdout.flush()
    if store is not None:  # rank 0 serves the store, so it exits last
        store.set(f"result/{rank}", "{}")
        if rank == 0:
            wait_until(lambda: all(store.check([f"result/{r}"]) for r in present_ranks(store, world_size)), seconds)
    return 0 if own.fine else 1


if __name__ == "__main__":
    sys.exit(_main())
