"""The `lab` application: every command, in the order a learner meets them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import typer

from labs.cli import (
    attempt_commands,
    demo_command,
    export_command,
    grade_command,
    mystery_command,
    observe_commands,
    overview_commands,
    upgrade_command,
    watch_command,
)
from labs.cli.class_commands import classroom
from labs.cli.dev_commands import dev
from labs.cli.in_language import OPTION
from labs.cli.which_lab import has_mysteries

app = typer.Typer(
    name="lab",
    help="Learn why a model that runs without an error is wrong: find, fix, and prove the fix.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"vla-debug-lab {version('vla-debug-lab')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        # Eager: typer handles it before it looks for a command.
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
    lang: Annotated[  # taken out of the command line before typer sees it
        str | None,
        typer.Option(
            OPTION,
            metavar="en|ko",
            help="The language of what lab prints, before or after the command. Default: LAB_LANG, then the locale. "
            "JSON documents are in English.",
            show_default=False,
        ),
    ] = None,
    pack: Annotated[
        # `labs.cli.main` takes it out of the arguments, because the catalog is imported before they are parsed.
        str | None,
        typer.Option("--pack", metavar="DIR|URL@COMMIT", help="Take the labs from a pack.", show_default=False),
    ] = None,
) -> None:
    """The options of `lab` itself."""
    del version, lang, pack


for _name, _command in {
    "list": overview_commands.list_labs,
    "next": overview_commands.next_one,
    "start": attempt_commands.start,
    "run": observe_commands.run,
    "grade": grade_command.grade,
    "hint": attempt_commands.hint,
    "watch": watch_command.watch,
    "mystery": mystery_command.mystery,
    "diagnose": observe_commands.diagnose,
    "diff": attempt_commands.diff,
    "reset": attempt_commands.reset,
    "solution": attempt_commands.solution,
    "progress": overview_commands.progress,
    "open": overview_commands.open_lesson,
    "demo": demo_command.demo,
    "doctor": overview_commands.doctor,
    "init": overview_commands.init,
    "export": export_command.export,
    "upgrade": upgrade_command.upgrade,
}.items():
    app.command(_name)(_command)

# A course pack has none of these.
if not has_mysteries():
    app.registered_commands[:] = [one for one in app.registered_commands if one.name != "mystery"]
for _group, _package in ((classroom, "labs.classroom"), (dev, "labs.authoring.verify")):
    if find_spec(_package) is not None:
        app.add_typer(_group)
