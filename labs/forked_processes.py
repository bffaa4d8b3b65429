"""Calls a function in several processes that communicate with `torch.distributed`, and returns a result for each.

`labs.processes` starts and ends the processes. Here, each has one result, and a line of policy.py where it raised.
"""

from __future__ import annotations

import re
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from labs.processes import Report, in_processes

FINISHED = "finished"


def run_in_processes(work: Callable[[int], Any], count: int = 2) -> list[dict[str, Any]]:
    """Call `work(rank)` in `count` processes that have joined a group, and return a result for each.

    `ended` is FINISHED, `still waiting`, `aborted` or `raised …`; `at` is the line of policy.py that raised; `returned`
    is what `work` returned, tensors and plain data, or None.
    """

    def told(rank: int, report: Report) -> None:
        try:
            report({"ended": FINISHED, "at": "", "returned": work(rank)})
        except Exception as error:
            report(
                {
                    "ended": f"raised {type(error).__name__}: {_first_sentence(error)}",
                    "at": _line(error),
                    "returned": None,
                }
            )

    with warnings.catch_warnings():
        # From Python 3.12 on, of a fork beside threads: torch's have nothing to do.
        warnings.simplefilter("ignore", DeprecationWarning)
        ended = in_processes(told, count)
    return [one.results[0] if one.results else {"ended": one.how, "at": "", "returned": None} for one in ended]


def _line(error: Exception) -> str:
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith("policy.py")]
    return f"policy.py:{lines[-1].lineno}  {lines[-1].line}" if lines else ""


def _first_sentence(error: Exception) -> str:
    text = re.sub(r"^\[[^]]*\]\s*", "", str(error))  # gloo's messages start with its source file
    text = re.sub(r" \[[\d.]+\]:\d+", "", text)  # and name a port, another one each time
    return re.split(r"\. |\n", text)[0][:110]
