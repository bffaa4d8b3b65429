"""Letters between ranks, through the key-value store that `init_process_group` set up.

A letter is put down and, if it is there, picked up; nobody waits. So a rank that hangs, that was never started or that
does not use debugkit costs the others nothing, and it works with every backend.
"""

from __future__ import annotations

import json
import time
from typing import Any

import torch.distributed as dist

from debugkit.finding import NotExamined


class Mailbox:
    """The letters of one topic in one run. Raises NotExamined where there is no process group."""

    def __init__(self, topic: str) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise NotExamined("This process has joined no process group: call init_process_group() before.")
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        store = dist.distributed_c10d._get_default_store()
        run = store.add(f"debugkit/{topic}/runs/{self.rank}", 1)  # the second watch() must not read the first one's
        self._store = dist.distributed_c10d.PrefixStore(f"debugkit/{topic}/{run}", store)

    @property
    def others(self) -> list[int]:
        """All ranks but this one."""
        return [rank for rank in range(self.world_size) if rank != self.rank]

    def post(self, key: str, letter: Any) -> None:
        """Leave a letter, what `json.dumps` takes, for all ranks."""
        self._store.set(f"{key}/{self.rank}", json.dumps(letter))

    def read(self, key: str, rank: int) -> Any | None:
        """The letter of `rank`, or None if it has left none."""
        name = f"{key}/{rank}"
        return json.loads(self._store.get(name)) if self._store.check([name]) else None

    def wait(self, key: str, rank: int, seconds: float) -> Any | None:
        """The same, looking again for up to so many seconds."""
        deadline = time.monotonic() + seconds
        while (letter := self.read(key, rank)) is None and time.monotonic() < deadline:
            time.sleep(0.02)
        return letter

    def discard(self, key: str) -> None:
        """Take back this rank's own letter."""
        self._store.delete_key(f"{key}/{self.rank}")
