"""`--lang` and the language of typer's own words."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from labs.cli.take_option import take_option
from labs.locale import ENGLISH, language_of, set_language, translated

OPTION = "--lang"


def take_language(arguments: list[str]) -> list[str]:
    """Set the language that the arguments or the environment ask for; returns the arguments without `--lang`.

    Raises LanguageError.
    """
    wanted, rest = take_option(OPTION, arguments)
    set_language(ENGLISH)  # a message about an unknown language is English
    set_language(language_of() if wanted is None else wanted)
    return rest


def translate_command(command: Any) -> None:
    """Put the help of a command, of its options and of its subcommands into the current language."""
    from typer import rich_utils

    from labs.cli.whole_lines import count_cells

    count_cells()
    for name in ("ARGUMENTS_PANEL_TITLE", "OPTIONS_PANEL_TITLE", "COMMANDS_PANEL_TITLE", "ERRORS_PANEL_TITLE"):
        setattr(rich_utils, name, translated(getattr(rich_utils, name)))
    for name in ("DEFAULT_STRING", "REQUIRED_LONG_STRING"):
        setattr(rich_utils, name, translated(getattr(rich_utils, name)))
    for one, options in with_subcommands(command):
        for holder in (one, *options):
            if getattr(holder, "help", None):
                holder.help = translated(holder.help)
        one.get_usage = functools.partial(_usage, one.get_usage)


def with_subcommands(command: Any, parent: Any = None) -> Iterator[tuple[Any, list[Any]]]:
    """A command and everything below it, each with its options and arguments, `--help` among them."""
    context = command.context_class(command, parent=parent, **command.context_settings)
    yield command, list(command.get_params(context))
    for one in getattr(command, "commands", {}).values():
        yield from with_subcommands(one, context)


def _usage(original: Callable[[Any], str], context: Any) -> str:
    return original(context).replace("Usage: ", translated("Usage: "), 1)
