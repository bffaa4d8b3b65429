"""`debugkit rules`, `explain` and `dev rule`: the rules, one rule's page, and the files of a new one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from debugkit.cli.output import Select, codes, usage, write
from debugkit.rule import UnknownCodeError, all_rules, as_json, choose, find_rule


def rules(
    as_document: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    select: Select = None,
) -> None:
    """List the rules."""
    try:
        chosen = choose(all_rules(), codes(select))
    except UnknownCodeError as error:
        usage(str(error))
    if as_document:
        write(json.dumps(as_json(chosen), indent=2))
        return
    family = ""
    for rule in chosen:
        if rule.family != family:
            family = rule.family
            write(f"\n{family}")
        write(f"  {rule.code}  {rule.severity:<7}  {rule.name:<28}  {rule.summary}")


def explain(
    code: Annotated[
        str | None, typer.Argument(help="A rule's code or name; without one, all rules are listed.")
    ] = None,
) -> None:
    """Show a rule's page: what it finds, why that hurts, what to do, when it stays silent."""
    if code is None:
        rules()
        return
    try:
        rule = find_rule(code)
    except UnknownCodeError as error:
        usage(str(error))
    heading = (
        f"# {rule.code} {rule.name}\n\n{rule.severity}, {rule.certainty}, cost {rule.cost}, {', '.join(rule.modes)}"
    )
    text = f"{heading}\n\n{rule.page}\n\n{rule.url}"
    if not sys.stdout.isatty():
        write(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))


def new_rule(
    code: Annotated[str, typer.Argument(help="The code of the new rule, for example DK316.")],
    name: Annotated[str, typer.Argument(help="The fault in words joined by hyphens, for example labels-shuffled.")],
    root: Annotated[Path, typer.Option(help="The root of the clone.")] = Path(),
) -> None:
    """Create a rule: one folder with page, observation, judge and measurement, and its two fixtures."""
    from debugkit.new_rule import NewRule, NewRuleError, create

    try:
        written = create(NewRule(code, name), root)
    except NewRuleError as error:
        usage(str(error))
    for path in written:
        write(f"created  {path}")
    write(f"\nReplace every TODO(author), then run: pytest tests/rules -k {code.lower()}")
