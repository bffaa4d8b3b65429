"""Runs one command line. Only here does an exception of a command become a sentence and an exit code."""

from __future__ import annotations

import signal
import sys
import tempfile
import traceback
from types import FrameType
from typing import Any

from labs.cli import print_error
from labs.cli.failures import GRADER_FAULT, INTERRUPTED, Failure, explain
from labs.cli.fast_list import run_fast_list
from labs.cli.in_language import take_language, translate_command
from labs.grading.submission_text import shorten
from labs.locale import ENGLISH, current_language


def run_command(arguments: list[str]) -> int:
    """Run the command and return its exit code. The user never sees a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a ★ must not stop a grade on an ASCII terminal
    previous = _terminate_like_an_interrupt()
    try:
        given = take_language(arguments)
        if run_fast_list(given):
            return 0
        code = _command()(args=given or ["--help"], prog_name="lab", standalone_mode=False)
        if code == INTERRUPTED:  # typer turns the interrupt into this code without a message
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BrokenPipeError:
        sys.stderr.close()  # `lab list | head`: the reader is gone, which is no error
        return 0
    except BaseException as error:
        failure = explain(error) or _own_fault(error)
        print_error(failure.sentence, arguments)
        return failure.exit_code
    finally:
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)


def _command() -> Any:
    """The whole of `lab` as a command, its help in the current language."""
    from typer.main import get_command

    from labs.cli.app import app

    command = get_command(app)
    if current_language() != ENGLISH:
        translate_command(command)
    return command


def _own_fault(error: BaseException) -> Failure:
    """A bug of the lab: the traceback goes to a file that the user can send to its authors."""
    what = shorten(f"{type(error).__name__}: {error}".partition("\n")[0], 300)
    try:
        with tempfile.NamedTemporaryFile("w", prefix="lab-bug-", suffix=".txt", delete=False, encoding="utf-8") as file:
            traceback.print_exception(error, file=file)
        details = f"The traceback is in {file.name}; please report it."
    except OSError as no_file:  # a full or missing temporary folder must not hide the message
        details = f"Its traceback could not be saved ({no_file.strerror or no_file}). Please report it."
    return Failure(f"this is a bug in lab and not in your code ({what}). {details}", GRADER_FAULT)


def _terminate_like_an_interrupt() -> signal.Handlers | None:
    """Make SIGTERM behave like Ctrl-C, so that a grade ends its child. None outside the main thread, which cannot."""

    def end(_signum: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        return signal.signal(signal.SIGTERM, end)  # type: ignore[return-value]
    except ValueError:
        return None
