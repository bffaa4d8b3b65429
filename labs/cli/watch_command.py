"""`lab watch`: grades a lab now and after every save; in a terminal, single keys do what other commands do.

A save while a grade runs ends that grade: its verdict would be about a file that is no longer there.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.text import Text

from labs.cli.attempt_commands import hint, start_attempt
from labs.cli.console import notice, out, paragraph, print_hanging
from labs.cli.failures import explain
from labs.cli.keyboard import on_key
from labs.cli.observe_commands import show_symptom
from labs.cli.options import LabNumber, WorkspaceOption
from labs.cli.overview_commands import list_labs, read_progress
from labs.cli.which_lab import which_lab
from labs.grading.answers import ANSWERS
from labs.grading.catalog import Lab, all_labs
from labs.learner.watch import on_save, version
from labs.learner.workspace import Workspace, resolve
from labs.locale import message, translated

if TYPE_CHECKING:
    from labs.grading.grades import CheckResult, Grade
    from labs.grading.sandbox.launch import Launcher, Pipes

KEYS = {"h": "hint", "l": "list", "r": "run", "n": "next lab", "q": "quit"}
STARTING_S, FIRST_S = 5.0, 30.0
"""How long a child may take to start, with a fork server that has started one before and with a new one."""
_SAVED, _CTRL_D = "saved", "\x04"


def watch(number: LabNumber, workspace: WorkspaceOption = None) -> None:
    """Grade a lab now and after every save, until it passes. In a terminal, single keys do more; they are shown."""
    from labs.grading import ForkServer

    lab: Lab | None = which_lab(number, workspace)
    here = resolve(workspace)
    assert lab is not None
    here.started_attempt(lab)
    events: queue.SimpleQueue[str] = queue.SimpleQueue()
    with ForkServer() as server, on_key(events.put) as has_keys:
        while lab is not None:
            lab = _Watch(lab, here, server, events, has_keys).run()


class _Watch:
    """One lab that is being watched."""

    def __init__(
        self, lab: Lab, here: Workspace, server: Launcher, events: queue.SimpleQueue[str], has_keys: bool
    ) -> None:
        self._lab = lab
        self._here = here
        self._fork_server = server
        self._server = _EndsEarly(server)
        self._events = events
        self._has_keys = has_keys
        self._names = (*lab.editable, ANSWERS) if lab.questions else lab.editable
        self._folder = here.attempt(lab)

    def run(self) -> Lab | None:
        """Grade and wait, in turn; returns the lab to watch next."""
        with on_save(self._folder, self._names, self._saved):
            event = _SAVED
            while True:
                if event == _SAVED:
                    done = self._graded()
                    if done.verdict == "passed" and not self._has_keys:
                        return None
                elif event in ("q", _CTRL_D):
                    return None
                elif event == "n" and (following := self._next()) is not None:
                    return following
                else:
                    self._act(event)
                self._say_what_it_waits_for()
                event = self._events.get()

    def _saved(self) -> None:
        self._events.put(_SAVED)
        self._server.end()  # after the event: a grade that is ended is always followed by another

    def _graded(self) -> Grade:
        """The grade of the files as they are: one of older files is not shown and not recorded."""
        from labs.cli.show_grade import show_grade, stream
        from labs.grading import grade
        from labs.learner.graded_attempt import record_grade

        while True:
            self._server.begin()
            self._drop_saves()
            before = version(self._folder, self._names)
            with stream(self._lab, quiet=False) as on_check:
                shown = self._while_current(before, on_check)
                done = grade(self._lab, self._folder, on_check=shown, server=self._server)
            if not self._server.superseded and version(self._folder, self._names) == before:
                break
            paragraph("Saved again: this grade is out of date, and a new one begins.", "quiet")
            out.print()
        message = record_grade(self._here, self._lab, done)
        if message:
            notice(message)
        show_grade(done, self._lab, self._folder)
        return done

    def _while_current(
        self, before: tuple[str, ...], on_check: Callable[[CheckResult], None] | None
    ) -> Callable[[CheckResult], None]:
        def shown(check: CheckResult) -> None:
            current = not self._server.superseded and version(self._folder, self._names) == before
            if on_check is not None and current:
                on_check(check)
            self._server.answered()

        return shown

    def _drop_saves(self) -> None:
        """Forget the saves so far, because the grade that begins now reads them; keep the keys."""
        kept = []
        with contextlib.suppress(queue.Empty):
            while True:
                event = self._events.get_nowait()
                if event != _SAVED:
                    kept.append(event)
        for event in kept:
            self._events.put(event)

    def _act(self, key: str) -> None:
        """What a key does. If it fails, the error is shown and watching continues."""
        try:
            if key == "h":
                hint(self._lab.id, None, self._here.root)
            elif key == "l":
                list_labs(self._here.root)
            elif key == "r":
                show_symptom(self._lab, self._here.started_attempt(self._lab), self._fork_server)
        except Exception as error:
            failure = explain(error)
            if failure is None:
                raise
            notice(failure.sentence)

    def _next(self) -> Lab | None:
        """The next lab of the curriculum that is not done, started; None if there is none or it cannot be started."""
        labs, known = list(all_labs()), read_progress(self._here)
        at = next(index for index, lab in enumerate(labs) if lab.id == self._lab.id)
        ahead = [lab for lab in labs[at + 1 :] + labs[:at] if known.status(lab.id) in ("new", "started")]
        if not ahead:
            notice("All other labs are done.")
            return None
        try:
            start_attempt(self._here, ahead[0])
        except Exception as error:
            failure = explain(error)
            if failure is None:
                raise
            notice(failure.sentence)
            return None
        return ahead[0]

    def _say_what_it_waits_for(self) -> None:
        keys = " · ".join(f"{key} {translated(what)}" for key, what in KEYS.items()) if self._has_keys else ""
        names = message(" or ").join(self._names)
        told = message("waiting for you to save {names}", names=names)
        print_hanging("  ", Text(f"{told} · {keys or translated('Ctrl-C ends')}", "quiet"))
        out.print()


class _EndsEarly:
    """A launcher whose child can be ended from another thread: the grade then ends at its next request."""

    def __init__(self, server: Launcher) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._pipes: Pipes | None = None
        self._answered = self._warm = False
        self.superseded = False
        """Whether the grade that began last is being ended: its verdict is discarded."""

    def begin(self) -> None:
        """A grade begins."""
        with self._lock:
            self._pipes, self._answered, self.superseded = None, False, False

    def launch(self, job: dict[str, Any]) -> Pipes:
        """Start a child. Raises SandboxError."""
        pipes = self._server.launch(job)
        with self._lock:
            self._pipes = pipes
            self._end_soon()
        return pipes

    def answered(self) -> None:
        """The child has given a result, so it has started."""
        with self._lock:
            self._answered = self._warm = True
            self._end_soon()

    def end(self) -> None:
        """End the running grade.

        A child that has not answered yet gets some seconds: a start that fails is tried again, with a new interpreter.
        """
        with self._lock:
            self.superseded = True
            self._end_soon()

    def _end_soon(self) -> None:
        if not self.superseded or self._pipes is None:
            return
        if self._answered:
            self._end_locked(self._pipes)
        else:
            later = threading.Timer(STARTING_S if self._warm else FIRST_S, self._end, [self._pipes])
            later.daemon = True
            later.start()

    def _end(self, pipes: Pipes) -> None:
        with self._lock:
            if pipes is self._pipes:
                self._end_locked(pipes)

    def _end_locked(self, pipes: Pipes) -> None:
        with contextlib.suppress(KeyError):  # the grade itself ends it at this moment
            pipes.end()
