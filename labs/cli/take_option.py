"""Options that are read before typer: where the labs are, and the language of every message."""

from __future__ import annotations

from collections.abc import Sequence


def take_option(option: str, arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """The last value of `option`, and the arguments without it. What follows `--` is no option and stays.

    The value is None if the option is not given, and "" if it is the last argument.
    """
    value = None
    rest: list[str] = []
    left = iter(arguments)
    for one in left:
        if one == "--":
            rest += [one, *left]
        elif one == option:
            value = next(left, "")
        elif one.startswith(f"{option}="):
            value = one.partition("=")[2]
        else:
            rest.append(one)
    return value, rest
