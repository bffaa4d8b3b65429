"""Watch a training loop in a notebook cell.

%load_ext debugkit

%%watch policy optimizer --every 10
for batch in loader:
    ...

The report is shown below the cell, as a page that loads nothing, and is in the variable `report`.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from typing import Any, NoReturn

from debugkit.integrations.missing import missing
from debugkit.watched_run import watch

try:
    from IPython.core.error import UsageError
    from IPython.display import display
except ImportError as error:
    raise missing("IPython", "ipython", "notebook") from error

_show: Callable[[object], object] = display
_USAGE = "%%watch MODEL [OPTIMIZER] [--every N] [--select CODES] [--ignore CODES] [--name NAME]"


def load(shell: Any) -> None:
    """Add the cell magic `%%watch` to a notebook; `%load_ext debugkit` calls this."""

    def watch_cell(line: str, cell: str) -> None:
        """Watch the training loop in this cell with debugkit, and show the report."""
        run_watched(shell, line, cell)

    shell.register_magic_function(watch_cell, "cell", "watch")


def run_watched(shell: Any, line: str, cell: str) -> None:
    """Run `cell` inside `debugkit.watch()` and show the report, after an exception of the cell too, which is raised.

    `line` has the arguments of the magic: expressions for the model and the optimizer, and options. Raises IPython's
    UsageError for other arguments, SetupError and UnknownCodeError.
    """
    wanted = _arguments(line)
    objects = [shell.ev(expression) for expression in (wanted.model, wanted.optimizer) if expression]
    run = watch(*objects, every=wanted.every, select=wanted.select, ignore=wanted.ignore)
    source = shell.transform_cell(cell)
    code = compile(source, shell.compile.cache(source), "exec")  # its lines are known to tracebacks and findings
    try:
        with run:
            exec(code, shell.user_ns)
    finally:
        shell.user_ns[wanted.name] = run.report
        _show(run.report)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. Usage: {_USAGE}")


def _arguments(line: str) -> Any:
    parser = _Parser(prog="%%watch", add_help=False, allow_abbrev=False)
    parser.add_argument("model")
    parser.add_argument("optimizer", nargs="?")
    parser.add_argument("--every", type=int)
    parser.add_argument("--select")
    parser.add_argument("--ignore")
    parser.add_argument("--name", default="report")
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{error}. Usage: {_USAGE}") from None
    return parser.parse_args(words)
