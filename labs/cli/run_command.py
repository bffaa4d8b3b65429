"""Runs one command line: whatever a command raises becomes one sentence and an exit code here, and nowhere else."""

from __future__ import annotations

import signal
import sys
import tempfile
import traceback
from types import FrameType

from labs.cli import print_error
from labs.cli.failures import GRADER_FAULT, INTERRUPTED, Failure, explain
from labs.cli.light_list import listed_lightly


def run_command(arguments: list[str]) -> int:
    """Run the command and return its exit code; no traceback reaches a person."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a ★ must not end a grade on an ASCII terminal
    previous = _terminate_like_an_interrupt()
    try:
        if listed_lightly(arguments):
            return 0
        from labs.cli.app import app

        code = app(args=arguments or ["--help"], prog_name="lab", standalone_mode=False)
        if code == INTERRUPTED:  # typer turns the interrupt into this code and says nothing
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BrokenPipeError:
        sys.stderr.close()  # `lab list | head`: the reader has gone, and that is no error
        return 0
    except BaseException as error:
        failure = explain(error) or _own_fault(error)
        print_error(failure.sentence, arguments)
        return failure.exit_code
    finally:
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)


def _own_fault(error: BaseException) -> Failure:
    """Nobody's mistake but the lab's: the traceback goes to a file that can be sent to its authors."""
    with tempfile.NamedTemporaryFile("w", prefix="lab-fault-", suffix=".txt", delete=False, encoding="utf-8") as file:
        traceback.print_exception(error, file=file)
    said = f"{type(error).__name__}: {error}".partition("\n")[0]
    return Failure(
        f"this is a fault of the lab's own, not yours ({said}). The details are in {file.name}.", GRADER_FAULT
    )


def _terminate_like_an_interrupt() -> signal.Handlers | None:
    """Let SIGTERM unwind as Ctrl-C does, so that a grade ends its child; None outside the main thread, which cannot."""

    def end(_signum: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        return signal.signal(signal.SIGTERM, end)  # type: ignore[return-value]
    except ValueError:
        return None
