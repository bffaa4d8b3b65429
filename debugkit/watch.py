"""watch(): look over the shoulder of any training loop, without a change to it or to its results.

    with debugkit.watch(model, optimizer) as run:
        for batch in loader:
            ...
    run.report

A step ends where `optimizer.step()` does. Until then ranges and norms stay on the device; one transfer brings them over
just before the parameters change, which is the last moment at which a step that made a NaN can be run again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import torch
from torch import nn

from debugkit.checkup import judge
from debugkit.declare import Declare
from debugkit.finding import Finding, Severity, Unexamined
from debugkit.folding import fold
from debugkit.monitor.module_hooks import ModuleHooks
from debugkit.monitor.monitor import Monitor
from debugkit.monitor.probe_stations import ProbeStations
from debugkit.monitor.snapshot import SnapshotWriter
from debugkit.observations.activations import Activations
from debugkit.observations.grad_scaler import ScalerUse
from debugkit.observations.gradients import GradientNorms
from debugkit.observations.losses import Loss, Losses
from debugkit.observations.nonfinite import Nonfinite
from debugkit.observations.optimizer_events import OptimizerEvents
from debugkit.observations.training_mode import TrainingModes
from debugkit.providers import probes_for
from debugkit.registry import Rule, all_rules, choose
from debugkit.report import DebugkitError, Report, fingerprint
from debugkit.subject import Subject, SubjectError

OnFinding = Literal["log", "raise"] | Callable[[Finding], None]

_log = logging.getLogger("debugkit")
_OF_THE_RUN = {Losses, OptimizerEvents, ScalerUse, TrainingModes}
_OURS = {Activations, GradientNorms, Nonfinite} | _OF_THE_RUN
_LEVELS = {Severity.ERROR: logging.ERROR, Severity.WARNING: logging.WARNING, Severity.INFO: logging.INFO}


def watch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
    on_finding: OnFinding = "log",
    snapshot_dir: str | Path | None = None,
    *,
    every: int = 1,
    select: str | Sequence[str] | None = None,
    ignore: str | Iterable[str] | None = None,
    declare: Declare | None = None,
) -> Run:
    """Watch the training loop inside the `with` block; losses are bit-equal with and without it.

    Without `optimizer`, every optimizer that steps is watched. `on_finding` is "log" (logger `debugkit`), "raise"
    (DebugkitError on a finding at `error`, before the parameters change where it is a NaN; lesser ones are logged), or
    a function of the Finding. `snapshot_dir` is where a step that made a NaN is kept for `debugkit replay`. With
    `every=10` values are looked at in every tenth step. After the first 32 steps that are looked at, what is dear
    (values inside the model, weight updates, dtypes, parameter groups) is looked at in one of 7; losses, outputs and
    gradients still in each. Raises SubjectError for arguments of the wrong kind and UnknownCodeError.
    """
    if on_finding not in ("log", "raise") and not callable(on_finding):
        raise SubjectError(f'on_finding must be "log", "raise" or a function of a Finding, but is {on_finding!r}.')
    if not isinstance(every, int) or every < 1:
        raise SubjectError(f"every must be a number of steps, 1 or more, but is {every!r}.")
    subject = Subject.of(model, optimizer=optimizer, declare=declare)
    rules = chosen_rules(select, ignore)
    return Run(subject, rules, on_finding, every=every, snapshot_dir=snapshot_dir)


class Run:
    """What `watch()` returns: a context manager, and what is known of the run while it lasts and after it."""

    def __init__(
        self,
        subject: Subject | None,
        rules: Sequence[Rule],
        on_finding: OnFinding = "log",
        *,
        every: int = 1,
        snapshot_dir: str | Path | None = None,
        title: str = "",
    ) -> None:
        self._subject = subject
        self._rules = rules
        self._here = [rule for rule in rules if "watch" in rule.modes]
        self._on_finding = on_finding
        self._every = every
        self._declare = subject.declare if subject is not None else Declare()
        self._title = title or (type(subject.model).__name__ if subject is not None else "")
        self._entered = False
        self._findings: dict[tuple[str, ...], Finding] = {}
        self._examined: set[str] = set()
        self._unexamined: dict[str, Unexamined] = {}
        self._monitor: Monitor | None = None
        self._stations: ProbeStations | None = None
        self._missing: Mapping[type, Unexamined] = {}
        self._losses = Losses((), ())
        self._failure: str | None = None
        self._snapshots = SnapshotWriter(Path(snapshot_dir)) if snapshot_dir is not None else None
        self.steps = 0

    @property
    def monitor(self) -> Monitor:
        """The machinery; RuntimeError outside the `with` block."""
        if self._monitor is None:
            raise RuntimeError("The run is not being watched: this is known inside the `with` block only.")
        return self._monitor

    @property
    def report(self) -> Report:
        """What was found so far."""
        if self._monitor is not None:
            self._judge_run()
        examined = tuple(sorted(self._examined))
        left = {rule.code: self._why_not(rule) for rule in self._rules if rule.code not in self._examined}
        return Report(
            findings=fold(self._findings.values()),
            examined=examined,
            not_examined=tuple(left[code] for code in sorted(left)),
            failure=self._failure,
            title=f"{self._title}, {self.steps} step{'s' * (self.steps != 1)} watched",
        )

    @property
    def losses(self) -> tuple[Loss, ...]:
        """The last losses that backward() was called on, oldest first."""
        return (self._monitor.losses if self._monitor is not None else self._losses).last

    @property
    def snapshots(self) -> tuple[Path, ...]:
        """The snapshots that were written."""
        return tuple(self._snapshots.written) if self._snapshots is not None else ()

    def __enter__(self) -> Self:
        if self._entered:
            raise RuntimeError("A run is watched once: call debugkit.watch() again for the next one.")
        self._entered = True
        self._monitor = Monitor(
            [("", self._subject.model)] if self._subject is not None else [],
            (self._subject.optimizers or None) if self._subject is not None else None,
            every=self._every,
            on_nonfinite=self._on_nonfinite,
            on_step_end=self._on_step_end,
        )
        try:
            if self._subject is not None:
                self._attach_probes(self._subject)
            self._monitor.__enter__()
        except BaseException:
            if self._stations is not None:
                self._stations.close()
            raise
        return self

    def adopt(self, model: nn.Module) -> ModuleHooks:
        """Watch a model that was found while the loop runs; the first one is also what the probes look at."""
        first = self._subject is None
        hooks = self.monitor.add_model("" if first else f"{type(model).__name__}.", model)
        if first:
            self._subject = Subject.of(model, optimizer=self.monitor.optimizers, declare=self._declare)
            self._attach_probes(self._subject)
        return hooks

    def _attach_probes(self, subject: Subject) -> None:
        needed = {kind for rule in self._here for kind in (*rule.needs, *rule.uses)} - _OURS
        self._stations = self.monitor.stations = ProbeStations(probes_for(needed), subject)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        monitor = self.monitor
        try:
            if error is not None and self._snapshots is not None and not isinstance(error, DebugkitError):
                self._snapshots.write(monitor, f"the loop raised {type(error).__name__}: {error}")
            if error is None:
                monitor.finish()
                if self._stations is not None:
                    self._stations.loop_ended(monitor.observations)
            elif self._stations is not None:
                self._judge(self._stations.loop_failed(), quietly=True)
            self._judge_run(quietly=error is not None)
        finally:
            self._losses = monitor.losses
            monitor.__exit__(kind, error, at)
            if self._stations is not None:
                self._missing = self._stations.missing
                self._stations.close()
            self._monitor = self._stations = self._subject = None  # nothing of the loop outlives it here

    def _on_nonfinite(self, found: Nonfinite) -> None:
        if self._snapshots is not None:
            self._snapshots.write(self.monitor, found)
        self._judge({Nonfinite: found})  # now: afterwards the parameters are changed

    def _on_step_end(self, step: int, looked: bool) -> None:
        self.steps += 1
        seen = self.monitor.observations
        if self._stations is not None:
            self._stations.end_step(step, seen, looked=looked, will_look=self.monitor.active)
        if _is_time_to_judge(self.steps):
            if self._stations is not None:
                self._stations.recall(seen)
            self._judge_run()
        elif seen:
            self._judge(seen)

    def _judge_run(self, quietly: bool = False) -> None:
        monitor = self.monitor
        monitor.summarise()
        if self.steps:
            self._judge(monitor.observations, quietly)
        elif monitor.backwards:  # only what speaks of the loop itself: no step was seen
            self._judge({OptimizerEvents: monitor.observations[OptimizerEvents]}, quietly)

    def _judge(self, seen: Mapping[type, object], quietly: bool = False) -> None:
        missing = self._stations.missing if self._stations is not None else {}
        ready = [rule for rule in self._here if all(kind in seen for kind in rule.needs)]
        step = self.monitor.step
        findings, examined, unexamined = judge(ready, dict(seen), missing, self._declare, mode="watch", step=step)
        self._examined.update(examined)
        self._unexamined.update({entry.code: entry for entry in unexamined})
        for finding in findings:
            if (place := fingerprint(finding)) not in self._findings:
                self._findings[place] = finding
                if not quietly:
                    tell(finding, self._on_finding, self._title)

    def _why_not(self, rule: Rule) -> Unexamined:
        if rule.code in self._unexamined:
            return self._unexamined[rule.code]
        if "watch" not in rule.modes:
            return Unexamined(rule.code, "It is examined before training: use debugkit.check().")
        missing = self._stations.missing if self._stations is not None else self._missing
        if absent := [kind for kind in rule.needs if kind in missing]:
            return Unexamined(rule.code, missing[absent[0]].why)
        return Unexamined(rule.code, "The run had no complete step in which it could be seen.")


def tell(finding: Finding, on_finding: OnFinding, title: str = "") -> None:
    """Hand the finding on, raise it or log it, as `on_finding` says. Raises DebugkitError."""
    if callable(on_finding):
        on_finding(finding)
    elif on_finding == "raise" and finding.severity is Severity.ERROR:
        raise DebugkitError(Report(findings=(finding,), examined=(finding.code,), title=title))
    else:
        _log.log(_LEVELS[finding.severity], "%s %s: %s", finding.code, finding.name, finding.message)


def chosen_rules(select: str | Sequence[str] | None, ignore: str | Iterable[str] | None) -> tuple[Rule, ...]:
    """The rules that `select` and `ignore` leave. Raises UnknownCodeError."""
    selected = [select] if isinstance(select, str) else select
    ignored = [ignore] if isinstance(ignore, str) else ignore
    return choose(all_rules(), selected, ignored)


def _is_time_to_judge(steps: int) -> bool:
    """After each of the first steps, then at ever longer intervals: the whole run's record is judged each time."""
    return steps <= 8 or steps & (steps - 1) == 0 or steps % 256 == 0
