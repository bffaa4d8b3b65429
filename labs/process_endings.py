"""How the processes of a group ended, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

BOTH_FINISHED = "process 0 finished, process 1 finished"


def endings(ranks: Sequence[Mapping[str, Any]]) -> str:
    """How each process ended, from the results of `labs.forked_processes`."""
    return ", ".join(f"process {rank} {result['ended']}" for rank, result in enumerate(ranks))
