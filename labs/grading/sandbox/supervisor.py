"""The child's parent: a process that contains one grade and cleans up after it, however it ends.

It reads one job frame from its control descriptor. The end of that stream means that the grader is done, or dead.
Then everything is killed and the private folder removed, and only after that does the supervisor end, which the grader
sees as the end of the status stream. Standard library only: it runs before torch is imported.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from labs.grading.sandbox import frames, kernel, namespaces, signals, subreaper

JOB_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Descriptors:
    """The pipes of one grade, as numbers in the supervisor."""

    control: int
    """Read: the job, then nothing until the grade ends."""
    status: int
    """Write: one frame that says how the child ended, or what went wrong here."""
    requests: int
    """Read, by the child only."""
    replies: int
    """Write, by the child only."""
    output: int
    """Write: the child's stdout and stderr."""

    def all(self) -> tuple[int, ...]:
        """Every number."""
        return (self.control, self.status, self.requests, self.replies, self.output)


@dataclass(frozen=True)
class ChildSetup:
    """What the child gets: its pipes, its folder, its job and how it is contained."""

    requests: int
    replies: int
    folder: Path
    job: dict[str, Any]
    namespaced: bool


RunChild = Callable[[ChildSetup], NoReturn]


def supervise(pipes: Descriptors, run_child: RunChild) -> int:
    """Contain and run one child; return the exit status for this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the control stream ends
    kernel.hide_memory()
    received = frames.receive(pipes.control, JOB_BYTES)
    if received is None:
        return 0
    job = received[0]
    folder: Path | None = None
    try:
        folder = _private_folder(job["files"])
        _contain(pipes, job, folder, run_child)
    except OSError as error:
        _report(pipes.status, {"fault": f"the sandbox could not be set up: {error.strerror or error}"})
    finally:
        if folder is not None:
            _remove(folder)
    return 0


def _private_folder(files: dict[str, str]) -> Path:
    """A folder for one grade: `submission/` with the learner's files, `home/` for what the child writes."""
    folder = Path(tempfile.mkdtemp(prefix="lab-grade-")).resolve()
    try:
        (folder / "home").mkdir(mode=0o700)
        for name, text in files.items():
            path = folder / "submission" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")
    except OSError:
        _remove(folder)
        raise
    return folder


def _contain(pipes: Descriptors, job: dict[str, Any], folder: Path, run_child: RunChild) -> None:
    namespaced = namespaces.available()
    with _child_deaths() as (deaths, writing):
        if namespaced:
            namespaces.enter()
        else:
            kernel.become_subreaper()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for descriptor in (deaths, writing):
                os.close(descriptor)  # a child that reads or fills this pipe could hide its own end
            setup = ChildSetup(pipes.requests, pipes.replies, folder, job, namespaced)
            (_init if namespaced else _become_child)(pipes, setup, run_child)
        for descriptor in (pipes.requests, pipes.replies, pipes.output):
            os.close(descriptor)
        try:
            _wait(pipes, pid, deaths, report_end=not namespaced)
        finally:
            if namespaced:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)  # returns when the whole namespace is empty
            else:
                subreaper.kill_descendants(pid)


@contextlib.contextmanager
def _child_deaths() -> Any:
    """A pipe that becomes readable when a child dies."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        yield reading, writing
    finally:
        signal.set_wakeup_fd(-1)


def _wait(pipes: Descriptors, pid: int, deaths: int, *, report_end: bool) -> None:
    """Wait until the child has ended, or the grader closes the control stream or dies."""
    watched = [pipes.control, deaths]
    while True:
        ready, _, _ = select.select(watched, [], [])
        if pipes.control in ready:
            return  # the grader closed it, or died; it never sends anything else
        os.read(deaths, 4096)
        while True:
            try:
                ended, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                ended = 0
            if ended == 0:
                break
            if ended == pid:
                if report_end:
                    _report(pipes.status, _ending(status))
                return


def _init(pipes: Descriptors, setup: ChildSetup, run_child: RunChild) -> NoReturn:
    """PID 1 of the namespace: prepares it, starts the child, reaps every process, and reports how the child ended."""
    try:
        kernel.die_with_parent()
        os.close(pipes.control)
        namespaces.raise_loopback()
        hidden = [Path(path) for path in setup.job["hidden"]]
        namespaces.seal_files(setup.folder / "home", hidden, int(setup.job["limits"]["file_mb"]))
        pid = os.fork()
        if pid == 0:
            _become_child(pipes, setup, run_child)
        for descriptor in (pipes.requests, pipes.replies, pipes.output):
            os.close(descriptor)
        ended = 0
        while ended != pid:
            ended, status = os.wait()
        _report(pipes.status, _ending(status))
    except BaseException as error:
        _report(pipes.status, {"fault": f"the sandbox could not be set up: {error}"})
    os._exit(0)


def _become_child(pipes: Descriptors, setup: ChildSetup, run_child: RunChild) -> NoReturn:
    """Become the child: its own process group, no privileges, no descriptor of the supervisor."""
    try:
        if not setup.namespaced:
            kernel.die_with_parent()
        os.setsid()
        kernel.drop_capabilities()
        if not setup.namespaced:
            signals.contain()
        kernel.hide_memory(False)  # the learner's code expects to read its own /proc
        for number in (signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(pipes.output, 1)
        os.dup2(pipes.output, 2)
        for descriptor in {nothing, pipes.control, pipes.status, pipes.output} - {0, 1, 2}:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        run_child(setup)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
    os._exit(70)


def _ending(status: int) -> dict[str, Any]:
    if os.WIFSIGNALED(status):
        return {"signal": os.WTERMSIG(status)}
    return {"exit": os.WEXITSTATUS(status)}


def _report(descriptor: int, header: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the grader may be gone
        frames.send(descriptor, frames.pack(header))


def _remove(folder: Path) -> None:
    """Remove the folder even if the submission removed permissions inside it."""
    for root, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            Path(root).chmod(stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Entry of the cold supervisor: `python -c … CONTROL STATUS REQUESTS REPLIES OUTPUT`."""
    from labs.grading.sandbox import cold_child

    pipes = Descriptors(*(int(argument) for argument in sys.argv[1:6]))
    sys.exit(supervise(pipes, cold_child.start))
