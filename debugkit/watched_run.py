"""watch(): observe any training loop without changing it or its results.

    with debugkit.watch(model, optimizer) as run:
        for batch in loader:
            ...
    run.report

A step ends when `optimizer.step()` returns. Ranges and norms are kept on the device and read in one transfer just
before the parameters change. After that, a step that made a NaN could no longer be run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch import nn

from debugkit.declare import Declare
from debugkit.finding import Finding, Unexamined, renamed
from debugkit.frames import one_line, raising_line
from debugkit.gradient_norms import GradientNorms
from debugkit.judging import judge
from debugkit.loop.losses import Loss, Losses
from debugkit.loop.monitor import Monitor
from debugkit.loop.optimizer_events import OptimizerEvents
from debugkit.loop.probe_runner import ProbeRunner
from debugkit.loop.scaler_use import ScalerUse
from debugkit.loop.stages import Stages
from debugkit.loop.state_loads import StateLoads
from debugkit.loop.step_counts import StepCounts
from debugkit.loop.training_modes import TrainingModes
from debugkit.observation import probes_in_loop
from debugkit.on_finding import OnFinding, tell
from debugkit.plain_data import at_line
from debugkit.recorders.activations import Activations
from debugkit.recorders.output_ranges import ModuleHooks
from debugkit.report import DebugkitError, Report, fingerprint
from debugkit.root_cause import fold
from debugkit.rule import Rule, all_rules, choose, codes_in
from debugkit.rule_text import counted
from debugkit.setup import SetupError, TrainingSetup
from debugkit.step_replay.nonfinite import Nonfinite
from debugkit.step_replay.snapshot import SnapshotWriter

_OF_THE_RUN = {Losses, OptimizerEvents, ScalerUse, StateLoads, TrainingModes}
_NONE_SEEN = "The run is too short: 0 of"
_OURS = {Activations, GradientNorms, Nonfinite} | _OF_THE_RUN


def watch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
    *,
    on_finding: OnFinding = "log",
    snapshot_dir: str | Path | None = None,
    every: int | None = None,
    select: str | Sequence[str] | None = None,
    ignore: str | Iterable[str] | None = None,
    declare: Declare | None = None,
) -> Run:
    """Watch the training loop inside the `with` block. Losses are bit-equal with and without it.

    All arguments after `optimizer` are keyword-only.

    Args:
        model: the module that is trained.
        optimizer: the optimizer to watch, or several; by default every optimizer that steps.
        on_finding: `"log"` writes each finding to the logger `debugkit`. `"raise"` raises DebugkitError for a finding
            with severity `error` (for a NaN, before the parameters change) and logs the others. A function is called
            with each Finding.
        snapshot_dir: the folder in which a step that made a NaN, or raised, is saved for `debugkit replay`.
        every: 10 examines values in every tenth step; by default each step. Values inside the model, dtypes and
            parameter groups are examined in the first 3 to 10 of these steps, weight updates in the first 32; later in
            one of 13. Losses, outputs and gradients are examined in each. After 32 examined steps, a model with fewer
            than 131,072 parameters is examined in one step of 97, because its steps take less time than their
            examination. With `every=1`, `on_finding="raise"` or a `snapshot_dir`, each step is examined.
        select: codes or prefixes (`"DK5"`) of the rules to examine; all by default.
        ignore: codes or prefixes to leave out.
        declare: facts that no tool can infer.

    Raises SetupError if an argument is of the wrong kind and UnknownCodeError if a code matches no rule.
    """
    if on_finding not in ("log", "raise") and not callable(on_finding):
        raise SetupError(f'on_finding must be "log", "raise" or a function of a Finding, but is {on_finding!r}.')
    if every is None and (on_finding == "raise" or snapshot_dir is not None):
        every = 1  # a NaN must be found before the parameters change
    if every is not None and (not isinstance(every, int) or every < 1):
        raise SetupError(f"every must be a number of steps, 1 or more, but is {every!r}.")
    setup = TrainingSetup.of(model, optimizer=optimizer, declare=declare)
    rules = chosen_rules(select, ignore)
    return Run(setup, rules, on_finding, every=every, snapshot_dir=snapshot_dir)


class Run:
    """The return value of `watch()`: a context manager with the results of the run, inside the block and after it."""

    def __init__(
        self,
        setup: TrainingSetup | None,
        rules: Sequence[Rule],
        on_finding: OnFinding = "log",
        *,
        every: int | None = 1,
        snapshot_dir: str | Path | None = None,
        title: str = "",
    ) -> None:
        self._setup = setup
        self._rules = rules
        self._here = [rule for rule in rules if "watch" in rule.modes]
        self._on_finding = on_finding
        self._every = every
        self._declare = setup.declare if setup is not None else Declare()
        self._title = title or (type(setup.model).__name__ if setup is not None else "")
        self._stage = ""
        """The prefix of the paths of findings in a later stage."""
        self.on_stage: Callable[[], None] = lambda: None
        """Called after the probes were attached to the model of another stage."""
        self.elsewhere: Callable[[], str | None] = lambda: None
        """A sentence on processes in which the loop may have run instead; None if there is none."""
        self._entered = False
        self._findings: dict[tuple[str, ...], Finding] = {}
        self._examined: set[str] = set()
        self._unexamined: dict[str, Unexamined] = {}
        self._monitor: Monitor | None = None
        self._probes: ProbeRunner | None = None
        self._missing: Mapping[type, Unexamined] = {}
        self._losses = Losses((), ())
        self._failure: str | None = None
        self._snapshots = SnapshotWriter(Path(snapshot_dir)) if snapshot_dir is not None else None
        self._counts = StepCounts()
        self._backwards = 0

    @property
    def report(self) -> Report:
        """The findings so far. If the loop raised, `failure` contains the exception, and the report is not `ok`."""
        if self._monitor is not None:
            self._judge_run()
        examined = tuple(sorted(self._examined))
        left = {rule.code: self._why_not(rule) for rule in self._rules if rule.code not in self._examined}
        return Report(
            findings=fold(self._findings.values()),
            examined=examined,
            not_examined=tuple(left[code] for code in sorted(left)),
            failure=self._failure,
            title=f"{self._title}, {self._counts_now()}{', in this process' if self.elsewhere_only else ''}",
        )

    @property
    def steps(self) -> int:
        """The optimizer steps that were watched. A step that a GradScaler skipped does not count."""
        return self._counts_now().taken

    @property
    def losses(self) -> tuple[Loss, ...]:
        """The last losses on which `backward()` was called, oldest first."""
        return (self._monitor.losses if self._monitor is not None else self._losses).last

    @property
    def snapshots(self) -> tuple[Path, ...]:
        """The folders of the snapshots that were written, for `debugkit replay`."""
        return tuple(self._snapshots.written) if self._snapshots is not None else ()

    def __enter__(self) -> Self:
        if self._entered:
            raise RuntimeError("A run can be watched only once: call debugkit.watch() again for the next one.")
        self._entered = True
        self._monitor = Monitor(
            [("", self._setup.model)] if self._setup is not None else [],
            (self._setup.optimizers or None) if self._setup is not None else None,
            every=self._every,
            on_nonfinite=self._on_nonfinite,
            on_step_end=self._on_step_end,
            on_stage=self._on_stage,
        )
        try:
            if self._setup is not None:
                self._attach_probes(self._setup)
            self._monitor.__enter__()
        except BaseException:
            if self._probes is not None:
                self._probes.close()
            raise
        return self

    def _attach_probes(self, setup: TrainingSetup) -> None:
        needed = {kind for rule in self._here for kind in (*rule.needs, *rule.uses)} - _OURS
        self._probes = monitor_of(self).probes = ProbeRunner(
            {one.observation: one.load for one in probes_in_loop(needed)}, setup
        )

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        monitor = monitor_of(self)
        if isinstance(error, Exception) and not isinstance(error, DebugkitError):
            self._failure = _failure(error)
        try:
            if error is not None and self._snapshots is not None and not isinstance(error, DebugkitError):
                self._snapshots.write(monitor, f"the loop raised {type(error).__name__}: {error}")
            if error is None:
                monitor.finish()
                if self._probes is not None:
                    self._probes.loop_ended(monitor.observations)
                    self._probes.recall(monitor.observations, attached=True)
            elif self._probes is not None:
                self._judge(self._probes.loop_failed(), quietly=True)
            self._judge_run(quietly=error is not None, ended=error is None)
        finally:
            self._losses = monitor.losses
            self._counts = monitor.events.counts
            self._backwards = monitor.backwards
            monitor.__exit__(kind, error, at)
            if self._probes is not None:
                self._missing = self._probes.missing
                self._probes.close()
            self._monitor = self._probes = self._setup = None  # keep no reference to the loop's objects

    def _on_nonfinite(self, found: Nonfinite) -> None:
        if self._snapshots is not None:
            self._snapshots.write(monitor_of(self), found)
        self._judge({Nonfinite: found})  # before the parameters change

    def _on_step_end(self, step: int, looked: bool) -> None:
        monitor = monitor_of(self)
        seen = monitor.observations
        judged = _is_time_to_judge(monitor.events.counts.attempted)
        if self._probes is not None:
            self._probes.end_step(step, seen, looked=looked, will_look=monitor.active, judged=judged)
        if judged:
            if self._probes is not None:
                self._probes.recall(seen)
            self._judge_run()
        elif seen:
            self._judge(seen)

    def _on_stage(self, attaching: AbstractContextManager[None]) -> None:
        """The loop trains another model from now on. What is known of the one before is judged for the last time."""
        monitor = monitor_of(self)
        if monitor.stages is None:
            return
        model = monitor.stages.model
        if self._probes is not None:
            self._probes.loop_ended(monitor.observations)
            self._probes.recall(monitor.observations, attached=True)
            self._judge_run()
            self._probes.close()
        monitor.observations.clear()  # they are of the model before
        monitor.begin_stage(model)
        self._stage = f"{type(model).__name__}."
        with attaching:
            self._examine_model(model, monitor.stages.optimizers)
        self.on_stage()

    def _examine_model(self, model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> None:
        """Attach the probes to a model that was found while the loop runs."""
        found = TrainingSetup.of(model, optimizer=optimizers, declare=self._declare)
        self._setup = replace(found, more_optimizers=True)
        self._attach_probes(self._setup)

    def _counts_now(self) -> StepCounts:
        return self._counts if self._monitor is None else self._monitor.events.counts

    def _judge_run(self, quietly: bool = False, ended: bool = False) -> None:
        monitor = monitor_of(self)
        monitor.summarise()
        if self._counts_now().attempted:
            self._judge(monitor.observations, quietly, ended)
        elif monitor.backwards:  # no step was observed: judge only the events of the loop
            self._judge({OptimizerEvents: monitor.observations[OptimizerEvents]}, quietly, ended)

    def _judge(self, seen: Mapping[type, object], quietly: bool = False, ended: bool = False) -> None:
        missing = self._probes.missing if self._probes is not None else {}
        ready = [rule for rule in self._here if all(kind in seen for kind in rule.needs)]
        step = monitor_of(self).step
        findings, examined, unexamined = judge(
            ready, dict(seen), missing, self._declare, mode="watch", step=step, ended=ended
        )
        self._examined.update(examined)
        self._unexamined.update({entry.code: entry for entry in unexamined})
        for finding in map(self._placed, findings):
            if (place := fingerprint(finding)) not in self._findings:
                self._findings[place] = finding
                if not quietly:
                    tell(finding, self._on_finding, self._title)

    def _placed(self, finding: Finding) -> Finding:
        """The finding with paths that begin with the class of the model, if it is not the first one."""
        if not self._stage:
            return finding
        known = (self._stage, *(prefix for prefix, _ in monitor_of(self).roots if prefix))
        return renamed(finding, lambda path: path if path.startswith(known) else f"{self._stage}{path}".rstrip("."))

    def _why_not(self, rule: Rule) -> Unexamined:
        missing = self._probes.missing if self._probes is not None else self._missing
        absent = [missing[kind] for kind in rule.needs if kind in missing]
        if failed := [one for one in absent if one.error is not None]:
            return replace(failed[0], code=rule.code)
        if (entry := self._unexamined.get(rule.code)) is not None:
            return entry if not entry.why.startswith(_NONE_SEEN) else Unexamined(rule.code, self._no_step or entry.why)
        if "config" in rule.modes:
            return Unexamined(rule.code, "It reads a configuration: call debugkit.integrations.hydra.check_config().")
        if "watch" not in rule.modes:
            return Unexamined(rule.code, "It is examined before training: use debugkit.check().")
        if absent:
            needs_step = "pass optimizer=" in absent[0].why or absent[0].why.startswith(_NONE_SEEN)
            none_given = self._no_step if needs_step else None
            return replace(absent[0], code=rule.code, why=none_given or absent[0].why)
        why = "The run had no complete step in which this could be observed."
        return Unexamined(rule.code, self._no_step or why)

    @property
    def elsewhere_only(self) -> str | None:
        """`elsewhere()`, if this process called no `backward()` and made no step; otherwise None."""
        backwards = self._backwards if self._monitor is None else self._monitor.backwards
        return None if self._failure is not None or backwards or self._counts_now().attempted else self.elsewhere()

    @property
    def _no_step(self) -> str | None:
        """Why nothing is observed in a loop that trains without an optimizer; None if it has one, or failed early."""
        backwards = self._backwards if self._monitor is None else self._monitor.backwards
        if (elsewhere := self.elsewhere_only) is not None:
            return elsewhere
        if self._failure is not None or not backwards or (counts := self._counts_now()).attempted or counts.foreign:
            return None
        return (
            f"No torch optimizer made a step in {counted(backwards, 'backward pass', 'backward passes')}, and this is "
            "observed only in its steps: a loop that updates the parameters itself needs one, such as torch.optim.SGD."
        )


def monitor_of(run: Run) -> Monitor:
    """The monitor of a run. Raises RuntimeError outside the `with` block."""
    if run._monitor is None:
        raise RuntimeError("The run is not being watched: this is available only inside the `with` block.")
    return run._monitor


def adopt(run: Run, model: nn.Module) -> ModuleHooks:
    """Watch a model that was found while the loop runs. The probes observe the one that is trained now."""
    first, monitor = run._setup is None, monitor_of(run)
    hooks = monitor.add_model("" if first else f"{type(model).__name__}.", model)
    if first:
        monitor.stages = Stages(model)
        run._examine_model(model, monitor.optimizers)
    return hooks


def _failure(error: Exception) -> str:
    line = raising_line(error.__traceback__, through_debugkit=True)
    where = at_line(line)
    return f"The loop raised {one_line(error)}{where}."


def chosen_rules(select: str | Sequence[str] | None, ignore: str | Iterable[str] | None) -> tuple[Rule, ...]:
    """The rules selected by `select` and `ignore`. Raises UnknownCodeError."""
    return choose(all_rules(), codes_in(select), codes_in(ignore))


def _is_time_to_judge(steps: int) -> bool:
    """True after each of the first steps, then at growing intervals, because each time the whole record is judged."""
    return steps <= 8 or (steps <= 32 and steps % 4 == 0) or steps & (steps - 1) == 0 or steps % 256 == 0
