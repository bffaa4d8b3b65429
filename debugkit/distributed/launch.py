"""Which of the processes that a launcher such as torchrun has started this one is."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Launched:
    """One of several processes that run the same program."""

    rank: str
    processes: str

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.processes}"

    def own_file(self, path: Path) -> Path:
        """`report.json` for rank 0 and `report.rank1.json` for rank 1: they would write over each other's file."""
        return path if self.rank == "0" else path.with_name(f"{path.stem}.rank{self.rank}{path.suffix}")


def launched() -> Launched | None:
    """This process among the others, by the variables `RANK` and `WORLD_SIZE`; None if it was started alone."""
    rank, processes = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    return Launched(rank, processes) if rank.isdecimal() and processes.isdecimal() and int(processes) > 1 else None
