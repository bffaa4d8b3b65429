"""Do the ranks reach one another? The smallest program that shows it, on gloo, and on NCCL where there are GPUs.

    debugkit doctor --distributed                                   # ranks on this machine, started and watched here
    torchrun --nnodes 2 … --no-python debugkit doctor --distributed # the same test as a rank of any launcher

Three questions, each with a time-out of its own, so that the answer names a rank and not a duration: who comes (a roll
call through the store), who answers (`monitored_barrier` over gloo), who adds up right (`all_reduce`, gloo and NCCL).
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch does not list it as exported
from torch.distributed.distributed_c10d import PrefixStore, Store

from debugkit.doctor import Health, Line

SECONDS = 60.0
"""How long a rank waits for the others, at each of the three questions."""
_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_GRACE_S = 15.0  # for the import of torch, and for ranks that wait for this one to say so


@dataclass(frozen=True, slots=True)
class Answer:
    """What one rank has to say."""

    rank: int
    host: str
    fine: bool
    seen: str
    advice: str = ""

    @property
    def line(self) -> Line:
        """The same as a line of `debugkit doctor`."""
        health = Health.FINE if self.fine else Health.BROKEN
        return Line(f"rank {self.rank} on {self.host}"[:24], self.seen, health, self.advice)


class _Unreachable(Exception):  # noqa: N818 - a result of the test, not an error of it
    """A question that was not answered; the arguments are what was seen and what to do."""


def is_rank(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a launcher (torchrun, or srun with these variables) has started this process as one of several."""
    return all(name in environment for name in _NEEDED)


def answers_of_all(seconds: float = SECONDS, environment: Mapping[str, str] = os.environ) -> list[Line]:
    """Run the test as the rank that the environment names. The lines of all ranks on the lowest rank that came;
    elsewhere its own, and none if it is fine.
    """
    rank, world_size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
    own, store = _ask(rank, world_size, seconds, environment)
    if store is None:
        return [own.line]
    try:
        store.set(f"answer/{rank}", json.dumps(asdict(own)))
        if rank != min(_present(store, world_size)):
            _wait_until(lambda: store.check(["told"]), seconds)
            return [] if own.fine else [own.line]
        _wait_until(lambda: all(store.check([f"answer/{each}"]) for each in _present(store, world_size)), seconds)
        lines = [_answer_of(store, each).line for each in range(world_size)]
        store.set("told", "1")
    except dist.DistError:
        return [own.line]  # whoever held the store has gone
    if not environment.get("TORCHELASTIC_USE_AGENT_STORE"):
        time.sleep(0.5)  # the store lives in this process: others are still reading
    return lines


def network(
    seconds: float = SECONDS,
    ranks: int | None = None,
    command: Callable[[int], Sequence[str]] | None = None,
) -> Iterator[Line]:
    """Start `ranks` processes on this machine (one a GPU, or two) and yield a line for each as they answer or do not.

    `command(rank)` is what a rank runs.
    """
    ranks = ranks or max(2, torch.cuda.device_count())
    command = command or (lambda _: [sys.executable, "-m", "debugkit.distributed.network_test"])
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
            deadline = min(deadline, time.monotonic() + seconds / 2 + 5)  # one has ended: the others should too
    finally:
        for process in started:
            process.kill()
            process.communicate()


def verdict(lines: Sequence[Line]) -> str:
    """One sentence on the ranks' lines."""
    failed = [line.what.split()[1] for line in lines if line.health is Health.BROKEN]
    if not failed:
        return f"All {len(lines)} ranks reach one another."
    names = ", ".join(failed)
    return f"{len(failed)} of {len(lines)} ranks did not get through: {names}. Start with the first ✗ above."


def _outcome(rank: int, process: subprocess.Popen[str], deadline: float) -> Line:
    """What a rank said, or how it ended without saying anything."""
    try:
        said, errors = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return Line(f"rank {rank}", "no answer: it neither ended nor said anything", Health.BROKEN)
    for text in said.splitlines():
        if text.startswith("{"):
            return Answer(**json.loads(text)).line
    if process.returncode < 0:
        name = signal.Signals(-process.returncode).name
        advice = (
            "SIGKILL is mostly the kernel short of memory (see dmesg); SIGSEGV a library or driver that does not fit."
        )
        return Line(f"rank {rank}", f"ended by {name} before it could answer", Health.BROKEN, advice)
    last = (errors.strip().splitlines() or [f"exit code {process.returncode} without a message"])[-1]
    return Line(f"rank {rank}", last[:160], Health.BROKEN)


def _ask(rank: int, world_size: int, seconds: float, environment: Mapping[str, str]) -> tuple[Answer, Store | None]:
    """The three questions, up to the first that is not answered."""
    host, store = socket.gethostname(), None
    try:
        store = _open_store(rank, world_size, seconds, environment)
        store.set(f"here/{rank}", host)
        _roll_call(store, world_size, seconds)
        spoken = [_gloo(store, rank, world_size, seconds)]
        if torch.cuda.is_available() and dist.is_nccl_available():
            spoken.append(_nccl(world_size, int(environment.get("LOCAL_RANK", rank)), seconds))
    except _Unreachable as silence:
        return Answer(rank, host, False, *silence.args), store
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return Answer(rank, host, True, f"OK: {', '.join(spoken)}"), store


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
            wait_for_workers=False,  # it would wait without saying for whom
        )
    except (dist.DistError, OSError, RuntimeError) as error:
        raise _Unreachable(
            f"nobody answers at {address}:{port} in {seconds:g} s ({type(error).__name__}): rank 0 is missing",
            "Rank 0's node must be up, MASTER_ADDR its name as seen from here, and MASTER_PORT open and not in use.",
        ) from error
    run = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    return PrefixStore(f"debugkit/network/{run}", store)


def _roll_call(store: Store, world_size: int, seconds: float) -> None:
    """Wait until every rank has come. Raises _Unreachable with the missing ones."""
    if not _wait_until(lambda: len(_present(store, world_size)) == world_size, seconds):
        missing = [rank for rank in range(world_size) if rank not in _present(store, world_size)]
        raise _Unreachable(
            f"waited {seconds:g} s for {_ranks(missing)}, which never came",
            "Was it started? See its node's log; --nnodes, --node-rank and --nproc-per-node must agree on all nodes.",
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
        raise _Unreachable(
            f"gloo: {_who_failed(str(error))}",
            "Ranks found the store but not each other: set GLOO_SOCKET_IFNAME to the interface that they share.",
        ) from error
    return _added_up("gloo", float(total), world_size)


def _nccl(world_size: int, local_rank: int, seconds: float) -> str:
    devices = torch.cuda.device_count()
    if local_rank >= devices:
        raise _Unreachable(
            f"NCCL: local rank {local_rank} has no GPU of its own, this node shows {devices}",
            "Start as many ranks a node as it has GPUs, and look at CUDA_VISIBLE_DEVICES.",
        )
    try:
        torch.cuda.set_device(local_rank)
        group = dist.new_group(backend="nccl", timeout=timedelta(seconds=seconds))
        total = torch.tensor([dist.get_rank() + 1.0], device="cuda")
        work = dist.all_reduce(total, group=group, async_op=True)
        if not _wait_until(work.is_completed, seconds):
            raise RuntimeError("the all_reduce did not come back")
        value = float(total)
    except RuntimeError as error:
        first = str(error).partition("\n")[0]
        raise _Unreachable(
            f"NCCL: {first[:120]}",
            "Run it again with NCCL_DEBUG=INFO: the last line before it stops names the interface or the peer.",
        ) from error
    return _added_up("NCCL", value, world_size)


def _added_up(backend: str, total: float, world_size: int) -> str:
    wanted = world_size * (world_size + 1) / 2
    if total != wanted:
        raise _Unreachable(f"{backend}: all_reduce gave {total:g} where {wanted:g} is right", "Do not train on this.")
    return f"{backend} adds up {world_size} ranks"


def _who_failed(message: str) -> str:
    """monitored_barrier's message on rank 0 names the ranks that did not come; of any other, the first line."""
    if "successfully reached monitoredBarrier" in message:
        return "came to the barrier, and rank 0 gave it up: its line says for whom"
    first = (message.splitlines() or ["no message"])[0]
    return re.sub(r"^(\[[^]]*\]:?\s*)+", "", first)[:160]


def _present(store: Store, world_size: int) -> list[int]:
    return [rank for rank in range(world_size) if store.check([f"here/{rank}"])]


def _answer_of(store: Store, rank: int) -> Answer:
    if store.check([f"answer/{rank}"]):
        return Answer(**json.loads(store.get(f"answer/{rank}")))
    if store.check([f"here/{rank}"]):
        host = store.get(f"here/{rank}").decode()
        return Answer(rank, host, False, "came, and then fell silent", "Look at the end of its node's log.")
    return Answer(rank, "?", False, "never came", "Was it started? Look at its node's log.")


def _wait_until(true: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _main() -> int:
    """A rank that `network` has started: its own answer, as JSON on stdout."""
    seconds = float(os.environ.get("DEBUGKIT_NETWORK_SECONDS", SECONDS))
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    own, store = _ask(rank, world_size, seconds, os.environ)
    sys.stdout.write(f"{json.dumps(asdict(own))}\n")
    sys.stdout.flush()
    if store is not None:  # rank 0 holds the store: it leaves last
        store.set(f"answer/{rank}", "{}")
        if rank == 0:
            _wait_until(lambda: all(store.check([f"answer/{r}"]) for r in _present(store, world_size)), seconds)
    return 0 if own.fine else 1


if __name__ == "__main__":
    sys.exit(_main())
