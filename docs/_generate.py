"""Write the pages that are made from code and records: rules, the reference, the mutants, error messages.

    python docs/_generate.py           # write what differs
    python docs/_generate.py --check   # change nothing; exit 1 and name the pages that are out of date

The pages are committed, so that they can be read and searched without building the site.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

sys.path.insert(0, str(Path(__file__).resolve().parent))

import _errors
import _injection
import _mystery
import _rule_pages
import _tables
import _third_party
from _translation import SUFFIX

from debugkit.rule import all_rules
from labs.authoring.mutation.page import mutation_page
from labs.grading.catalog import all_labs

RULES = "debugkit/rules"
REFERENCE = "reference"


def pages() -> dict[str, str]:
    """Every generated page's text, by its path below `docs/`."""
    made = {f"{RULES}/index.md": rules_index()}
    made |= {_tables.rule_page(rule): _rule_pages.rule_page(rule) for rule in all_rules()}
    made[f"{REFERENCE}/mutants.md"] = mutation_page(all_labs())
    made[f"{REFERENCE}/mystery.md"] = _mystery.page()
    made["debugkit/injection.md"] = _injection.page()
    made["debugkit/third_party.md"] = _third_party.page()
    made["errors.md"] = _errors.page(all_labs(), all_rules())
    made |= {f"{REFERENCE}/{name}.md": command_page(name, app) for name, app in _command_lines().items()}
    return made


def rules_index() -> str:
    """The table of all rules, by family."""
    lines = [
        "# Rules",
        "",
        "Each rule finds one fault. Only what is proved and certainly wrong is an `error`. What is proved and may be",
        "intended, a statistic, and a heuristic with clear evidence are a `warning`; the rest is `info`. The cost is",
        "what `debugkit.check` runs for it beyond one observed step: `F` is free, `3F` three forward passes, `data`",
        "reads batches of the loader, and `2P` needs two processes.",
        "",
    ]
    for chapter in _tables.chapters():
        rules = [rule for rule in all_rules() if rule.family == chapter.name]
        if rules:
            lines += [
                f"## DK{chapter.digit}xx {chapter.title}",
                "",
                f"{chapter.about[0].upper()}{chapter.about[1:]}.",
                "",
            ]
            lines += [_tables.rules_list(rules, "../../"), ""]
    return "\n".join(lines)


def command_page(name: str, app: typer.Typer) -> str:
    """One command line's reference: usage, arguments and options of every command, from its typer definitions."""
    root = typer.main.get_command(app)
    lines = [f"# `{name}`", "", _text(root.help), ""]
    lines += _commands(root, name, level=2)
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write, or check, every page. Returns 1 if the check finds one that is out of date."""
    check = "--check" in arguments
    if unknown := [argument for argument in arguments if argument != "--check"]:
        typer.echo(f"Unknown option {unknown[0]}. Usage: python docs/_generate.py [--check]", err=True)
        return 2
    made = pages()
    stale = [path for path, text in made.items() if _read(path) != text]
    orphans = sorted({path for folder in (RULES, REFERENCE) for path in _present(folder)} - made.keys())
    for path in stale:
        if not check:
            (_tables.DOCS / path).parent.mkdir(parents=True, exist_ok=True)
            (_tables.DOCS / path).write_text(made[path], encoding="utf-8")
        typer.echo(f"{'out of date' if check else 'written'}: docs/{path}")
    for path in orphans:
        if not check:
            (_tables.DOCS / path).unlink()
        typer.echo(f"{'has no source' if check else 'removed'}: docs/{path}")
    if check and (stale or orphans):
        typer.echo("Run `python docs/_generate.py` and commit the result.")
        return 1
    return 0


def _commands(command: Any, path: str, level: int) -> list[str]:
    lines: list[str] = []
    for name, child in getattr(command, "commands", {}).items():
        if child.hidden:
            continue
        full = f"{path} {name}"
        context = child.context_class(child, info_name=full)
        usage = " ".join([full, *child.collect_usage_pieces(context)])
        lines += [f"{'#' * level} {full}", "", _text(child.help), "", "```text", usage, "```", ""]
        lines += _parameters(child)
        lines += _commands(child, full, level + 1)
    return lines


def _parameters(command: Any) -> list[str]:
    rows = []
    for parameter in command.params:
        if getattr(parameter, "hidden", False):
            continue
        names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
        if parameter.param_type_name == "argument":
            names = f"`{(parameter.metavar or parameter.name).upper()}{'...' if parameter.nargs == -1 else ''}`"
        rows.append(f"| {names} | {_cell(getattr(parameter, 'help', None) or '')}{_default(parameter)} |")
    return ["| Option | |", "|---|---|", *rows, ""] if rows else []


def _default(parameter: Any) -> str:
    default = parameter.default
    if default is None or default is False or callable(default) or default in ((), [], ""):
        return ""
    return "" if "Sentinel" in type(default).__name__ else f" Default: `{default}`."


def _command_lines() -> dict[str, typer.Typer]:
    lines = {}
    for name, module in {"lab": "labs.cli.app", "debugkit": "debugkit.cli"}.items():
        if importlib.util.find_spec(module) and hasattr(cli := importlib.import_module(module), "app"):
            lines[name] = cli.app
    return lines


def _text(help_text: str | None) -> str:
    return re.sub(r"[\b\f]", "", help_text or "").strip()


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def _present(folder: str) -> list[str]:
    there = (page for page in (_tables.DOCS / folder).glob("*.md") if not page.name.endswith(SUFFIX))
    return [page.relative_to(_tables.DOCS).as_posix() for page in there]


def _read(path: str) -> str | None:
    page = _tables.DOCS / path
    return page.read_text(encoding="utf-8") if page.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
