"""The fast way to start a child: a process that has imported what labs need, and forks one child per grade.

A fork takes milliseconds; a fresh interpreter takes seconds for its imports. The server must never run a torch
operation: after one, a forked child has a thread pool without threads, and hangs.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from types import TracebackType
from typing import Any, NoReturn

from labs.grading.errors import SandboxError
from labs.grading.sandbox.cold_child import environment, python_command
from labs.grading.sandbox.launch import Pipes, new_pipes, outside_settings, send_job

_PRELOADED = (
    "torch._dynamo",  # every optimizer imports it: 1.2 CPU s
    "safetensors.torch",
    "numpy",
    "transformers.models.siglip.modeling_siglip",
    "transformers.models.llama.modeling_llama",
    "labs.grading.sandbox.child",
)


class ForkServer:
    """A running fork server; pass it as `grade(…, server=…)`. Use it as a context manager.

    The server and every child it forked end with this process, however it ends.
    """

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    python_command("labs.grading.sandbox.fork_server", str(theirs.fileno())),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                    env=environment() | outside_settings(),
                )
            except OSError as error:
                ours.close()
                raise SandboxError(f"The fork server could not be started: {error.strerror or error}.") from None
        self._socket = ours

    def launch(self, job: dict[str, Any]) -> Pipes:
        """Fork a child and send it its job. Raises SandboxError."""
        with new_pipes() as (pipes, theirs):
            socket.send_fds(self._socket, [b"j"], theirs)
        send_job(pipes, job)
        return pipes

    def close(self) -> None:
        """Stop the server; each child ends with its own grade."""
        self._socket.close()
        self._process.terminate()  # while it still imports, it would notice the end of the stream seconds later
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def main() -> None:
    """Entry of the server process: `python -c … SOCKET`."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    sys.argv[1:] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # so that the scratch folder is removed
    _preload()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing waits for the supervisors; the kernel reaps them
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, 1, 5)
        if not message:
            return
        if os.fork() == 0:
            requests.close()
            _supervise(descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _preload() -> None:
    """Import what labs need. Nothing here may run a torch operation."""
    import torch

    torch.set_num_threads(1)
    # Importing torch's compiler creates a cache folder, which must be removed.
    with tempfile.TemporaryDirectory(prefix="lab-grade-") as scratch:
        tempfile.tempdir = scratch
        for name in _PRELOADED:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        tempfile.tempdir = None


def _supervise(descriptors: list[int]) -> NoReturn:
    from labs.grading.sandbox import child, supervisor

    try:
        os.setsid()
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        supervisor.supervise(supervisor.Descriptors(*descriptors), child.run)
    finally:
        os._exit(0)
