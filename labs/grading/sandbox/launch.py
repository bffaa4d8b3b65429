"""How a supervisor is started, and the pipes the grader keeps to it and its child."""

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
    """The grader's ends. Closing `control` ends the child; the end of `status` says that nothing is left of it."""

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
        """Close everything, and reap the supervisor where it is our own child."""
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
        """Start it and hand it its job. Raises SandboxError."""


class ColdLauncher:
    """A fresh interpreter for the supervisor and another for the child: the reference."""

    def launch(self, job: dict[str, Any]) -> Pipes:
        """Start it and hand it its job. Raises SandboxError."""
        with new_pipes() as (pipes, theirs):
            pipes.process = subprocess.Popen(
                python_command("labs.grading.sandbox.supervisor", *map(str, theirs)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=theirs[-1],  # its own last words join the child's output, for a SandboxError to quote
                pass_fds=theirs,
                start_new_session=True,
                env=environment() | outside_settings(),
            )
        send_job(pipes, job)
        return pipes


def outside_settings() -> dict[str, str]:
    """What a supervisor, but not its child, takes from the person's environment."""
    return {name: os.environ[name] for name in ("TMPDIR", "LAB_NO_NAMESPACES") if name in os.environ}


class new_pipes:  # noqa: N801 (used as a context manager, like a function)
    """Five pipes: ours as `Pipes`, theirs as numbers in the supervisor's order; theirs are closed on leaving."""

    def __enter__(self) -> tuple[Pipes, tuple[int, ...]]:
        try:
            control, status, requests, replies, output = (os.pipe() for _ in range(5))
        except OSError as error:
            raise SandboxError(f"No child process could be started: {error.strerror}.") from None
        self._pipes = Pipes(control[1], status[0], requests[1], replies[0], output[0])
        self._theirs = (control[0], status[1], requests[0], replies[1], output[1])
        return self._pipes, self._theirs

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        for descriptor in self._theirs:
            os.close(descriptor)
        if error is not None:
            self._pipes.close()
        if isinstance(error, OSError):
            raise SandboxError(f"No child process could be started: {error.strerror or error}.") from None


def send_job(pipes: Pipes, job: dict[str, Any]) -> None:
    """Write the job where the supervisor reads it. Raises SandboxError."""
    try:
        frames.send(pipes.control, frames.pack(job))
    except OSError as error:
        pipes.close()
        raise SandboxError(f"The sandbox did not take its job: {error.strerror or error}.") from None
