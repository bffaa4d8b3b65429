"""Messages between ranks, through the key-value store that `init_process_group` set up.

Writing and reading do not wait for another rank. A rank that hangs, was not started or does not use debugkit therefore
does not delay the others. This works with every backend.
"""

from __future__ import annotations

import json
from typing import Any

import torch
import torch.distributed as dist

from debugkit._torch_private import default_store
from debugkit.finding import NotExamined


class MessageStore:
    """The messages of one topic in one run. Raises NotExamined without a process group."""

    def __init__(self, topic: str) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise NotExamined("There is no process group: call init_process_group() first.")
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        store = default_store()
        if store is None:
            raise NotExamined(f"PyTorch {torch.__version__} does not show the store of the process group.")
        run = store.add(
            f"debugkit/{topic}/runs/{self.rank}", 1
        )  # a second watch() must not read the messages of the first
        self._store = dist.distributed_c10d.PrefixStore(f"debugkit/{topic}/{run}", store)

    @property
    def others(self) -> list[int]:
        """All ranks but this one."""
        return [rank for rank in range(self.world_size) if rank != self.rank]

    def put(self, key: str, message: Any) -> None:
        """Write a message for all ranks; it must be serialisable by `json.dumps`."""
        self._store.set(f"{key}/{self.rank}", json.dumps(message))

    def get(self, key: str, rank: int) -> Any | None:
        """The message of `rank`, or None if it has written none."""
        name = f"{key}/{rank}"
        return json.loads(self._store.get(name)) if self._store.check([name]) else None
