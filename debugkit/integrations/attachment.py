"""A watched run that a framework's callbacks open and close, instead of a `with` block. One run at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import nn

from debugkit.declare import Declare
from debugkit.finding import Finding
from debugkit.on_finding import OnFinding, tell
from debugkit.report import Report
from debugkit.step_replay.call_frames import render_frames
from debugkit.step_replay.nonfinite import Nonfinite
from debugkit.watched_run import Run, chosen_rules, monitor_of, watch

_log = logging.getLogger("debugkit")
_NONFINITE = ("DK201", "DK202")


class Attachment:
    """Call `open()` when training starts and `close()` when it ends or fails. Both can be called for several fits."""

    def __init__(
        self,
        on_finding: OnFinding,
        snapshot_dir: str | Path | None,
        *,
        every: int,
        select: str | Sequence[str] | None,
        ignore: str | Iterable[str] | None,
        declare: Declare | None,
    ) -> None:
        """Raises UnknownCodeError here, so that a mistyped code is reported before training starts."""
        chosen_rules(select, ignore)
        self._on_finding = on_finding
        self._snapshot_dir = snapshot_dir
        self._every = every
        self._select = select
        self._ignore = ignore
        self._declare = declare
        self._run: Run | None = None
        self._is_open = False

    @property
    def run(self) -> Run | None:
        """The current run, or the last one. None before the first run."""
        return self._run

    @property
    def report(self) -> Report:
        """The findings of that run so far. The report is empty before the first run."""
        return self._run.report if self._run is not None else Report(title="no step watched yet")

    def open(self, model: nn.Module, optimizers: Iterable[torch.optim.Optimizer] | None) -> None:
        """Start watching. If a run is still open, it is closed first: its fit ended without a callback."""
        self.close()
        self._run = watch(
            model,
            optimizers,
            on_finding=self._hear,
            snapshot_dir=self._snapshot_dir,
            every=self._every,
            select=self._select,
            ignore=self._ignore,
            declare=self._declare,
        )
        self._run.__enter__()
        self._is_open = True

    def close(self, error: BaseException | None = None) -> None:
        """Remove all hooks. Does nothing if no run is open. Raises DebugkitError if the end of the run raises it."""
        if self._is_open and self._run is not None:
            self._is_open = False
            traceback = error.__traceback__ if error is not None else None
            self._run.__exit__(type(error) if error is not None else None, error, traceback)

    def _hear(self, finding: Finding) -> None:
        if finding.code in _NONFINITE:
            self._log_frames()
        tell(finding, self._on_finding)

    def _log_frames(self) -> None:
        """Log the last module calls in the format of `--debug underflow_overflow` in transformers."""
        assert self._run is not None
        seen = monitor_of(self._run).observations.get(Nonfinite)
        for origin in (seen.forward, seen.gradient) if isinstance(seen, Nonfinite) else ():
            if origin is not None and origin.frames:
                _log.error("The last %d module calls:\n%s", len(origin.frames), render_frames(origin.frames))
