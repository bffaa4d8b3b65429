"""Judge the ranks' records by DK804 while a rank is still waiting, and write the finding to the log."""

from __future__ import annotations

import logging

from debugkit.rule import Context, find_rule
from debugkit.rules.dk804_collective_mismatch import CollectiveRecord

PATIENCE_S = 30.0
"""Seconds; far below the timeouts used in training, and far above the waiting time of a normal step."""
_log = logging.getLogger("debugkit")


def report_stall(record: CollectiveRecord) -> None:
    """Log the finding of DK804 on the ranks' records."""
    rule = find_rule("DK804")
    for finding in rule.judge(record, Context(rule, mode="watch")):
        _log.warning("%s %s: %s", finding.code, finding.name, finding.message)
