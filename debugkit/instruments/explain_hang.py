"""explain_hang: what every rank is doing when one of them waits for the others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from debugkit.rules.dk804_collective_mismatch.collective_recorder import CollectiveRecorder
from debugkit.rules.dk804_collective_mismatch.stall_report import PATIENCE_S, report_stall


@contextlib.contextmanager
def explain_hang(*, after: float = PATIENCE_S) -> Iterator[None]:
    """Log which rank is missing, and the line it is at, if a collective does not return for `after` seconds.

        torch.distributed.init_process_group(...)
        with debugkit.explain_hang(after=60):
            train()

    Enter it on every rank, after `init_process_group`. It writes to the logger `debugkit`. It changes nothing and ends
    nothing: the process group keeps its own time-out. Raises NotExamined without a process group.
    """
    with CollectiveRecorder(after, report_stall):
        yield
