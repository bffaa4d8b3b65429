"""The processes that a script starts itself. What they train is not watched."""

from __future__ import annotations

from multiprocessing.process import BaseProcess
from typing import Any, Self

from debugkit.recorders.patches import Patches

_HELPERS = ("torch.utils.data", "multiprocessing.managers")
"""The modules of functions that run in processes which cannot train: workers of a data loader, and servers."""


class StartedProcesses:
    """Counts the processes that multiprocessing starts, also for `torch.multiprocessing.spawn` and executors."""

    def __init__(self, script: str) -> None:
        self._script = script
        self._patches = Patches()
        self.count = 0

    def __enter__(self) -> Self:
        self._patches.around(BaseProcess, "start", before=self._starts)
        return self

    def __exit__(self, *error: object) -> None:
        self._patches.__exit__(None, None, None)

    def _starts(self, process: Any) -> None:
        target = getattr(process, "_target", None)
        if not str(getattr(target, "__module__", "")).startswith(_HELPERS):
            self.count += 1

    @property
    def hint(self) -> str | None:
        """How to watch them; None if there are none."""
        if not self.count:
            return None
        are = "process, which is" if self.count == 1 else "processes, which are"
        return (
            f"The script started {self.count:,} {are} not watched: if the loop runs there, call it in the script's own "
            f"process, or in each process of `torchrun --nproc-per-node {self.count} --no-python debugkit run "
            f"{self._script}`."
        )
