"""Computing with one thread: what the grader, its child and the commands for authors compute with.

One thread and two differ in the last bits, and several graders with more threads slow each other down ten times.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_lock = threading.Lock()
_users = 0
_before = 1


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread inside the block. Each Python thread gets the number from before the first block back."""
    global _users, _before
    with _lock:
        found = torch.get_num_threads()  # asked in every thread: the first question sets that thread's own number
        if _users == 0:
            _before = found
        _users += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            torch.set_num_threads(_before)
