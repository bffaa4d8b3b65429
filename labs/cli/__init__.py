"""The `lab` command: thin typer commands over labs.learner, labs.grading and labs.authoring.

This file uses old syntax and imports nothing of the lab at the top. It reports that Python is too old or that a package
is missing, so it must run where the rest cannot.
"""

from __future__ import annotations

import sys
from typing import Optional, Sequence  # noqa: UP035  (must import on the Pythons it refuses)

OLDEST_PYTHON = (3, 11)


def main(arguments: Optional[Sequence[str]] = None) -> int:  # noqa: UP045
    """Run `lab` with `arguments` (default: the process's own) and return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if sys.version_info[:2] < OLDEST_PYTHON:
        print_error(
            "lab needs Python {}.{} or newer, and this is {}.{}. Create an environment with a newer one: "
            "`python3.11 -m venv .venv`.".format(*OLDEST_PYTHON, *sys.version_info[:2]),
            given,
        )
        return 2
    if sys.platform == "win32":
        print_error(
            "lab does not run on native Windows: its sandbox needs POSIX processes and limits. Install WSL "
            "(https://learn.microsoft.com/windows/wsl/install) and run lab in it. debugkit alone is not tested on "
            "native Windows.",
            given,
        )
        return 2
    try:
        if any(one == "--pack" or one.startswith("--pack=") for one in given):
            from labs.cli.pack_option import use_pack

            given, problem = use_pack(given)  # before the catalog is imported
            if problem:
                print_error(problem, given)
                return 2
        from labs.cli.run_command import run_command
    except ModuleNotFoundError as error:
        sentence = missing_package(error)
        if sentence is None:
            raise
        print_error(sentence, given)
        return 2
    return run_command(given)


def missing_package(error: ModuleNotFoundError) -> Optional[str]:  # noqa: UP045
    """What to say if a package is not installed; None if the module is one of ours, which is a bug."""
    package = (error.name or "").split(".")[0]
    if package in ("", "labs", "debugkit"):
        return None
    return f"lab needs {package}, which is not installed. Install it with `pip install 'vla-debug-lab[labs]'`."


def print_error(sentence: str, arguments: Sequence[str]) -> None:
    """Print it on stderr in the current language and, with `--json`, in English as the one document on stdout too."""
    sys.stderr.write("lab: " + _in_language(sentence).replace("\n", "\n     ") + "\n")
    if "--json" in arguments:
        import json

        sys.stdout.write(json.dumps({"schema": 1, "labs": [], "error": sentence}) + "\n")
        sys.stdout.flush()


def _in_language(sentence: str) -> str:
    """The sentence in the current language; in English on a Python that is too old, or if no catalogue can be read."""
    locale = sys.modules.get("labs.locale")
    try:
        return str(locale.translated(sentence)) if locale else sentence
    except ModuleNotFoundError:
        return sentence
