"""One watched run at a time, opened and closed by a framework's callbacks rather than by a `with` block."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import nn

from debugkit.declare import Declare
from debugkit.finding import Finding
from debugkit.monitor.call_frames import render_frames
from debugkit.observations.nonfinite import Nonfinite
from debugkit.report import Report
from debugkit.watch import OnFinding, Run, chosen_rules, tell, watch

_log = logging.getLogger("debugkit")
_NONFINITE = ("DK201", "DK202")


class Attachment:
    """`open()` when training begins, `close()` when it ends or dies; both may come again for the next fit."""

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
        """Raises UnknownCodeError: a typo is told here, and not when training has begun."""
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
        """The run that lasts, or the last one; None before the first."""
        return self._run

    @property
    def report(self) -> Report:
        """What was found in that run so far; an empty report before the first."""
        return self._run.report if self._run is not None else Report(title="no step watched yet")

    def open(self, model: nn.Module, optimizers: Iterable[torch.optim.Optimizer] | None) -> None:
        """Watch from here on. A run that is still open is closed: its fit was given up without a word."""
        self.close()
        self._run = watch(
            model,
            optimizers,
            self._hear,
            self._snapshot_dir,
            every=self._every,
            select=self._select,
            ignore=self._ignore,
            declare=self._declare,
        )
        self._run.__enter__()
        self._is_open = True

    def close(self, error: BaseException | None = None) -> None:
        """Detach every hook. Nothing happens if nothing is open. Raises DebugkitError as the end of a run may."""
        if self._is_open and self._run is not None:
            self._is_open = False
            traceback = error.__traceback__ if error is not None else None
            self._run.__exit__(type(error) if error is not None else None, error, traceback)

    def _hear(self, finding: Finding) -> None:
        if finding.code in _NONFINITE:
            self._log_frames()
        tell(finding, self._on_finding)

    def _log_frames(self) -> None:
        """The last module calls, as `--debug underflow_overflow` of transformers prints them."""
        assert self._run is not None
        seen = self._run.monitor.observations.get(Nonfinite)
        for origin in (seen.forward, seen.gradient) if isinstance(seen, Nonfinite) else ():
            if origin is not None and origin.frames:
                _log.error("The last %d module calls:\n%s", len(origin.frames), render_frames(origin.frames))
