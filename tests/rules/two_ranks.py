"""A process group for a fixture: of this process alone, or with a second one that trains beside it.

The second rank is a fork, which costs milliseconds where a fresh interpreter costs seconds. It is killed at the end of
its test, and by its own alarm if it hangs.
"""

import gc
import os
import signal
import tempfile
import threading
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch._dynamo  # DistributedDataParallel imports it: once, before the fork
import torch.distributed as dist

LIMIT_S = 600
"""Bounds a hang: of the second rank, and of a call in which one rank waits for the other."""
_children = []


def alone():
    """Join a group of one rank; `leave` it after."""
    leave()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


def meet_and_hurry(seconds=2):
    """Wait for the other rank as long as it takes; a call after this one raises if it waits for more than `seconds`.

    gloo of older torch (2.6) keeps the timeout that its group began with. There rank 1 exits a moment later, and rank
    0's call raises because the connection is closed.
    """
    dist.barrier()
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=seconds))
    if dist.get_rank() == 1:
        exits = threading.Timer(2 * seconds, os._exit, [1])
        exits.daemon = True
        exits.start()


def leave():
    if dist.is_initialized():
        dist.destroy_process_group()


def clean_up():
    """End what a fixture whose loop raised has left behind."""
    leave()
    while _children:
        child = _children.pop()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def two_ranks(prepare, train_beside):
    """Rank 0's `prepare()`, and a function that waits for rank 1 and says how it ended.

    Rank 1 runs `train_beside(*prepare())` and exits.
    """
    clean_up()
    gc.collect()  # here, where their threads are: in the fork, freeing an earlier group would wait forever
    folder = Path(tempfile.mkdtemp())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # forking a process that has threads: it runs on one
        child = os.fork()
    rank = 1 if child == 0 else 0
    if rank == 0:
        _children.append(child)
    else:
        signal.alarm(LIMIT_S)
        gc.freeze()
        torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder}/store",
            rank=rank,
            world_size=2,
            timeout=timedelta(seconds=LIMIT_S),
        )
        prepared = prepare()
        if rank == 1:
            train_beside(*prepared)
            dist.destroy_process_group()
            os._exit(0)
    except BaseException:
        if rank == 1:
            import traceback

            traceback.print_exc()
            os._exit(1)
        raise

    def join():
        leave()
        _, status = os.waitpid(child, 0)
        _children.remove(child)
        return os.waitstatus_to_exitcode(status)

    return prepared, join
