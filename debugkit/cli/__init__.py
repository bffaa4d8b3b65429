"""`debugkit` on the command line: thin commands over the library.

Exit codes: 0 nothing at `error` was found, 1 something was or the step failed, 2 wrong usage; `run` keeps the exit code
of a script that fails.
With a machine format, stdout carries that document alone: whatever the examined program prints goes to stderr.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from debugkit.cli.examine import check, replay, run
from debugkit.cli.list_rules import explain, new_rule, rules
from debugkit.cli.run_doctor import doctor
from debugkit.version import __version__

app = typer.Typer(
    name="debugkit",
    help="Detectors for training code that runs without an error and is wrong.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
dev_app = typer.Typer(help="For authors of rules, in a clone of the repository.", no_args_is_help=True)

_SCRIPT = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
app.command()(check)
app.command(context_settings=_SCRIPT)(run)
app.command()(rules)
app.command()(explain)
app.command()(doctor)
app.command()(replay)
app.add_typer(dev_app, name="dev")
dev_app.command("rule")(new_rule)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"debugkit {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        # Eager: it is answered before typer asks which command was meant.
        bool, typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """What holds for every command."""


@dev_app.callback()
def _dev() -> None:
    """For authors of rules, in a clone of the repository."""


def main() -> None:
    """The console script."""
    if sys.argv[1:2] == ["rules"] and set(sys.argv[2:]) <= {"--json"}:
        rules(as_document="--json" in sys.argv, select=None)  # Typer's own imports take longer than the list
    else:
        app()
