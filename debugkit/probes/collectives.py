"""Keeps the record of this rank's collectives, and of the others' where one does not come back."""

from __future__ import annotations

import sys
from typing import Self

from debugkit.distributed.collectives import CollectiveRecorder
from debugkit.distributed.wrappers import is_distributed
from debugkit.finding import NotExamined
from debugkit.instruments.explain_hang import PATIENCE_S, report_stall
from debugkit.observations.collectives import CollectiveRecord
from debugkit.probes import Probe, probe
from debugkit.subject import Subject


@probe(CollectiveRecord)
class CollectivesProbe(Probe[CollectiveRecord]):
    """One thread; logs where the ranks stand as soon as a call has not come back for half a minute."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        if not is_distributed():
            raise NotExamined("This process is in no group: enter watch() after init_process_group(), on every rank.")
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
