"""Where every rank stands when one of them waits for the others."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from debugkit.distributed.collectives import CollectiveRecorder
from debugkit.observations.collectives import CollectiveRecord
from debugkit.registry import Context, find_rule

PATIENCE_S = 30.0
"""Far below any time-out that is meant for training, far above a step's own waiting."""
_log = logging.getLogger("debugkit")


@contextlib.contextmanager
def explain_hang(after: float = PATIENCE_S) -> Iterator[None]:
    """Say which rank is missing, and at which line it stands, once a collective has not come back for `after` seconds.

        torch.distributed.init_process_group(...)
        with debugkit.explain_hang(after=60):
            train()

    Enter it on every rank, after `init_process_group`; it is written to the logger `debugkit`. Nothing is changed and
    nothing is ended: the time-out is still the process group's own. Raises NotExamined without a process group.
    """
    with CollectiveRecorder(after, report_stall):
        yield


def report_stall(record: CollectiveRecord) -> None:
    """Log what DK804 makes of the ranks' records."""
    rule = find_rule("DK804")
    for finding in rule.judge(record, Context(rule, mode="watch")):
        _log.warning("%s %s: %s", finding.code, finding.name, finding.message)
