"""A second process beside this one, so that debugkit can examine a loop that runs in two."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from labs.processes import join

PATIENCE_S = 20
"""A collective raises after it has waited this long for the other process."""


def with_a_second_process(work: Callable[[], None]) -> None:
    """Fork a process that does `work()` as rank 1 of a group of two. From now on, this process is rank 0 of the group.

    The other process does the same collectives in the same order, or the group raises. When its work has ended it stays
    until this process ends: a process that is gone looks like a broken connection.
    """
    parent = os.getpid()
    meeting = Path(tempfile.mkdtemp()) / "meeting"
    sys.stdout.flush()
    gc.collect()
    if os.fork() == 0:
        try:
            torch.set_num_threads(1)
            join(1, 2, meeting, PATIENCE_S)
            work()
            while os.getppid() == parent:
                time.sleep(0.1)
        finally:
            os._exit(0)
    join(0, 2, meeting, PATIENCE_S)
