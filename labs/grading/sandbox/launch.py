"""How a supervisor is started, and the pipes between it, its child and the grader."""

from __future__ import annotations

import contextlib
import os
import subprocess
from dataclasses import dataclass, field
from typing import Any, Protocol

from labs.grading.errors import SandboxError
from labs.grading.sandbox import frames
from labs.grading.sandbox.cold_child import environment, python_command


@dataclass
class Pipes:
    """The grader's ends. Closing `control` ends the child; the end of `status` means that nothing is left of it."""

    control: int
    status: int
    requests: int
    replies: int
    output: int
    process: subprocess.Popen[bytes] | None = None
    _open: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._open = {self.control, self.status, self.requests, self.replies, self.output}
        os.set_blocking(self.requests, False)

    def end(self) -> None:
        """Have the child killed."""
        self._close(self.control)

    def close(self) -> None:
        """Close everything, and reap the supervisor if it is our own child."""
        for descriptor in tuple(self._open):
            self._close(descriptor)
        if self.process is not None:
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def _close(self, descriptor: int) -> None:
        if descriptor in self._open:
            self._open.remove(descriptor)
            with contextlib.suppress(OSError):
                os.close(descriptor)


class Launcher(Protocol):
    """Starts the supervisor of one child."""

    def launch(self, job: dict[str, Any]) -> Pipes:
        """Start it and send it its job. Raises SandboxError."""


class ColdLauncher:
    """A fresh interpreter for the supervisor and another for the child: the reference path."""

    def launch(self, job: dict[str, Any]) -> Pipes:
        """Start it and send it its job. Raises SandboxError."""
        with new_pipes() as (pipes, theirs):
            pipes.process = subprocess.Popen(
                python_command("labs.grading.sandbox.supervisor", *map(str, theirs)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=theirs[-1],  # its last words join the child's output, so that a SandboxError can quote them
                pass_fds=theirs,
                start_new_session=True,
                env=environment() | outside_settings(),
            )
        send_job(pipes, job)
        return pipes


def outside_settings() -> dict[str, str]:
    """The part of the user's environment that a supervisor gets, and its child does not."""
    return {name: os.environ[name] for name in ("TMPDIR", "LAB_NO_NAMESPACES") if name in os.environ}


class new_pipes:  # noqa: N801 (used as a context manager, like a function)
    """Five pipes: ours as `Pipes`, theirs as numbers in the supervisor's order; theirs are closed on leaving."""

    def __enter__(self) -> tuple[Pipes, tuple[int, ...]]:
        try:
            control, status, requests, replies, output = (os.pipe() for _ in range(5))
        except OSError as error:
            raise SandboxError(f"no pipe could be opened ({error.strerror})") from None
        self._pipes = Pipes(control[1], status[0], requests[1], replies[0], output[0])
        self._theirs = (control[0], status[1], requests[0], replies[1], output[1])
        return self._pipes, self._theirs

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        for descriptor in self._theirs:
            os.close(descriptor)
        if error is not None:
            self._pipes.close()
        if isinstance(error, OSError):
            raise SandboxError(f"no process could be started ({error.strerror or error})") from None


def send_job(pipes: Pipes, job: dict[str, Any]) -> None:
    """Write the job to the supervisor. Raises SandboxError."""
    try:
        frames.send(pipes.control, frames.pack(job))
    except OSError as error:
        pipes.close()
        raise SandboxError(f"its supervisor could not be reached ({error.strerror or error})") from None
