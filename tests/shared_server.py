"""One fork server for the grades of a test process: starting one, or an interpreter, takes as long as many grades.

`share` is for `lab` in this process, `command` for a program in a process of its own.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labs.grading import ForkServer
from labs.grading.sandbox.launch import ColdLauncher, Pipes

if TYPE_CHECKING:
    import pytest

LAB = "from labs.cli import main; raise SystemExit(main())"
_ADOPT = f"import sys; sys.path.append({str(Path(__file__).parent)!r}); from shared_server import adopt; adopt(); "


class SharedServer(ForkServer):
    """Stays a real one while the others are replaced."""

    __init__ = ForkServer.__init__
    launch = ForkServer.launch
    close = ForkServer.close


def share(server: Callable[[], ForkServer], patch: pytest.MonkeyPatch) -> None:
    """Launch every child of this process from one server. It is asked for when the first is launched."""
    for where, name, replacement in _replacements(server):
        patch.setattr(where, name, replacement)


def command(server: SharedServer, program: str = LAB) -> tuple[list[str], dict[str, Any]]:
    """A command that runs a program and takes its arguments, and how to start it."""
    descriptor = server._socket.fileno()
    return [sys.executable, "-u", "-c", _ADOPT + program, str(descriptor)], {"pass_fds": (descriptor,)}


def adopt() -> None:
    """In that process: launch every child from the server that the parent has started."""
    adopted = object.__new__(SharedServer)
    adopted._socket = socket.socket(fileno=int(sys.argv.pop(1)))
    for where, name, replacement in _replacements(lambda: adopted):
        setattr(where, name, replacement)


def _replacements(server: Callable[[], ForkServer]) -> Iterator[tuple[type, str, Callable[..., Any]]]:
    def launch(_: object, job: dict[str, Any]) -> Pipes:
        return server().launch(job)

    yield ForkServer, "__init__", lambda _: None
    yield ForkServer, "close", lambda _: None
    yield ForkServer, "launch", launch
    yield ColdLauncher, "launch", launch
