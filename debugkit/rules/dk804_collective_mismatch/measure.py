"""Record the collectives of this rank, and read the records of the other ranks if a call does not return."""

from __future__ import annotations

import sys
from typing import Self

from debugkit.distributed.wrappers import is_distributed
from debugkit.finding import NotExamined
from debugkit.probe import Probe
from debugkit.rules.dk804_collective_mismatch import CollectiveRecord
from debugkit.rules.dk804_collective_mismatch.collective_recorder import CollectiveRecorder
from debugkit.rules.dk804_collective_mismatch.stall_report import PATIENCE_S, report_stall
from debugkit.setup import TrainingSetup


class CollectivesProbe(Probe[CollectiveRecord]):
    """Runs one thread, which logs the state of every rank if a call has not returned for half a minute."""

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        if not is_distributed():
            raise NotExamined("There is no process group: enter watch() after init_process_group(), on every rank.")
        self._recorder = CollectiveRecorder(PATIENCE_S, report_stall)
        self._record: CollectiveRecord | None = None

    def __enter__(self) -> Self:
        self._recorder.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._recorder.__exit__(None, None, None)

    def loop_failed(self) -> None:
        error = sys.exc_info()[1]
        if error is not None:
            self._record = self._recorder.failed(error)

    @property
    def observation(self) -> CollectiveRecord:
        return self._record or self._recorder.record(compared=False)
