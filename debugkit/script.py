"""Watches an unmodified training script. Models and optimizers are found when the script uses them.

After the script has ended, the experiments of check() that need only the model are run on one of its calls.

The script runs as under `python train.py ARGS…`, with the same arguments, as `__main__`, and with its folder first on
the path. Its exit code and its exception are returned with the report.
"""

from __future__ import annotations

import contextlib
import functools
import runpy
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from debugkit._torch_private import in_backward, keywords_of_call
from debugkit.declare import Declare
from debugkit.distributed.launch import launched
from debugkit.example_call import ExampleCalls
from debugkit.finding import Unexamined
from debugkit.frames import is_own, one_line
from debugkit.interventions.no_collectives import no_collectives
from debugkit.loop.started_processes import StartedProcesses
from debugkit.preflight import examine
from debugkit.recorders.module_calls import run_new_hooks
from debugkit.recorders.patches import Patches
from debugkit.report import Report
from debugkit.root_cause import fold
from debugkit.rule import Rule
from debugkit.step_replay.calls import ModuleCall
from debugkit.watched_run import Run, adopt, chosen_rules, monitor_of

_ABOUT_OUR_HOOKS = r"Using `torch\.compile\(module\)` when there are global hooks"


@dataclass(frozen=True)
class ScriptRun:
    """The result of a script: the report, the exit code as `python` would return it, and the exception, if any."""

    report: Report
    exit_code: int
    error: BaseException | None


def watch_script(
    script: Path,
    arguments: Sequence[str] = (),
    *,
    select: str | Sequence[str] | None = None,
    ignore: str | Sequence[str] | None = None,
    snapshot_dir: Path | None = None,
    every: int = 1,
    experiments: bool = True,
    progress: Callable[[str], None] | None = None,
) -> ScriptRun:
    """Run `script` to its end under watch(). A traceback goes to stderr as usual. Raises UnknownCodeError.

    With `experiments`, the rules of mode `call` are examined afterwards, if the script did not fail. `progress` is
    called with what they cost if they take more than two seconds.
    """
    rules = chosen_rules(select, ignore)
    run = Run(None, rules, every=every, snapshot_dir=snapshot_dir, title=_title(script))
    calls: list[ExampleCalls] = []
    error: BaseException | None = None
    started = StartedProcesses(script.name)
    run.elsewhere = lambda: started.hint
    with _as_main(script, arguments):
        try:
            with run, started, FindModels(run, calls if experiments else None):
                runpy.run_path(str(script), run_name="__main__")
        except BaseException as raised:  # SystemExit and KeyboardInterrupt end a script too
            error = raised
        exit_code = _exit_code(error, script)
        report = run.report
        if exit_code == 0 and experiments:
            if run.elsewhere_only and calls:
                calls[0].why_not = run.elsewhere_only
            with _termination_interrupts():
                report = with_experiments(report, calls, rules, progress)
    if exit_code != 0:
        report = replace(report, failure=_failure(error, exit_code))
    return ScriptRun(report, exit_code, error)


def _title(script: Path) -> str:
    """The name of the script, with the rank where several processes run it: each has its own report."""
    one = launched()
    return script.name if one is None else f"{script.name} ({one})"


def with_experiments(
    report: Report, calls: Sequence[ExampleCalls], rules: Sequence[Rule], progress: Callable[[str], None] | None
) -> Report:
    """The report of a run with that of the experiments on a call of each model that it trained, one after another."""
    for one in [each for each in calls if each.found is not None] or [*calls, ExampleCalls()][:1]:
        report = _with_experiments(report, one, rules, progress)
    return report


def _with_experiments(
    report: Report, calls: ExampleCalls, rules: Sequence[Rule], progress: Callable[[str], None] | None
) -> Report:
    """The same for one call, for the rules of mode `call`."""
    wanted = [rule for rule in rules if "call" in rule.modes]
    why_not, failed = calls.why_not, None
    more: Report | None = None
    if calls.found is not None:
        try:
            with no_collectives():
                more = examine(calls.found.setup(Declare()), wanted, progress=progress)
        except KeyboardInterrupt:
            why_not = "The experiments were interrupted."
        except Exception as error:  # the report of the run must not be lost, as where the memory of a device is full
            why_not, failed = f"The experiments raised {one_line(error)}.", error
    if more is None:
        more = Report(not_examined=tuple(Unexamined(rule.code, why_not, failed) for rule in wanted))
    found = [calls.found.placed(finding) for finding in more.findings] if calls.found is not None else []
    examined = {*report.examined, *more.examined}
    left = {entry.code: entry for entry in (*report.not_examined, *more.not_examined) if entry.code not in examined}
    return replace(
        report,
        findings=fold([*report.findings, *found]),
        examined=tuple(sorted(examined)),
        not_examined=tuple(left[code] for code in sorted(left)),
    )


class FindModels:
    """Starts to watch each model that the script uses, at its first call.

    A script may call a method of its model that is not `forward`, such as `log_prob`, or a part, such as
    `model.encoder(x)`. The model is then the module that contains the part and that the script has in a variable.
    """

    def __init__(self, run: Run, calls: list[ExampleCalls] | None = None) -> None:
        self._run = run
        self._calls = calls  # one for each stage of the run
        self._handles: list[RemovableHandle] = []
        self._patches = Patches()
        self._warnings = warnings.catch_warnings()

    def __enter__(self) -> None:
        self._run.on_stage = self._stage_begins
        self._stage_begins()
        self._warnings.__enter__()
        warnings.filterwarnings("ignore", message=_ABOUT_OUR_HOOKS)
        self._handles.append(register_module_forward_pre_hook(self._called))
        self._patches.__enter__().around(nn.Module, "compile", after=self._compiled)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._patches.__exit__(kind, error, at)
        self._warnings.__exit__(kind, error, at)
        for handle in self._handles:
            handle.remove()

    def _stage_begins(self) -> None:
        """Keep a call of the model that is trained from now on."""
        if self._calls is not None:
            monitor = monitor_of(self._run)
            calls = ExampleCalls(type(monitor.stages.model).__name__ if monitor.stages is not None else "")
            self._calls.append(calls)
            monitor.on_call = functools.partial(self._call_ended, calls)
            monitor.loop_operations.on_operation = calls.operation

    def _compiled(self, module: nn.Module, *_: Any, **__: Any) -> None:
        """`module.compile()` was called. Its later calls run in compiled code, where no hook sees the first one."""
        monitor = monitor_of(self._run)
        if not monitor.is_watched(module) and next(module.parameters(), None) is not None:
            adopt(self._run, _model_of(module) or module)

    def _called(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if torch.compiler.is_compiling():
            return
        monitor = monitor_of(self._run)
        if monitor.running.modules or monitor.paused or in_backward():
            return
        if monitor.is_watched(module) or next(module.parameters(), None) is None:
            return
        model = _model_of(module)
        if model is None:
            return
        with run_new_hooks(module, args, keywords_of_call(module)):
            adopt(self._run, model)

    def _call_ended(self, calls: ExampleCalls, call: ModuleCall, output: Any) -> None:
        monitor = monitor_of(self._run)
        if monitor.stages is not None and len(self._calls or ()) > 1:
            is_examined = call.module is monitor.stages.model
        else:
            is_examined = any(call.module is model for model in monitor.models)
        if is_examined:
            calls.ended(call, output)
            if not calls.searching:
                monitor.on_call = monitor.loop_operations.on_operation = None


def _model_of(module: nn.Module) -> nn.Module | None:
    """The largest module that contains `module` among the local variables of the script's functions, or `module`.

    None while a module that contains it is being built: its `__init__` may call a layer to learn a size.
    """
    found, size = module, 0
    frame = sys._getframe(1).f_back
    while frame is not None:
        if is_own(frame.f_code.co_filename):
            for name, value in list(frame.f_locals.items()):
                if not issubclass(type(value), nn.Module) or value is module:
                    continue
                parts = list(value.modules())
                if len(parts) <= size or not any(part is module for part in parts):
                    continue
                if name == "self" and frame.f_code.co_name == "__init__":
                    return None
                found, size = value, len(parts)
        frame = frame.f_back
    return found


@contextlib.contextmanager
def _termination_interrupts() -> Iterator[None]:
    """Inside the block, SIGTERM raises KeyboardInterrupt, so that the report is not lost.

    torchrun sends it to the other ranks as soon as one has ended with an exit code, as for its findings.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


@contextlib.contextmanager
def _as_main(script: Path, arguments: Sequence[str]) -> Iterator[None]:
    """`sys.argv` and `sys.path` as the script expects them."""
    argv, path = sys.argv, list(sys.path)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path


def _exit_code(error: BaseException | None, script: Path) -> int:
    """The exit code that `python` would return. Writes to stderr what `python` would write."""
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        sys.stderr.write(f"{error.code}\n")
        return 1
    at = error.__traceback__
    while at is not None and at.tb_frame.f_code.co_filename != str(script):
        at = at.tb_next  # skip the frames of debugkit and runpy
    traceback.print_exception(type(error), error, at or error.__traceback__)
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def _failure(error: BaseException | None, exit_code: int) -> str:
    if error is None or isinstance(error, SystemExit):
        return f"The script exited with code {exit_code}."
    return f"The script raised {one_line(error)}."
