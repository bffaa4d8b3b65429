"""`debugkit` on the command line: thin commands over the library.

Exit codes: 0 nothing at `error` was found, 1 something was or the step failed, 2 wrong usage; `run` keeps the exit code
of a script that fails.
With a machine format, stdout carries that document alone: whatever the examined program prints goes to stderr.
"""

from __future__ import annotations

import contextlib
import enum
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from debugkit.finding import Severity
from debugkit.rule import UnknownCodeError, all_rules, as_json, choose, find_rule

if TYPE_CHECKING:
    from debugkit.doctor import Line
    from debugkit.report import Report

app = typer.Typer(
    name="debugkit",
    help="Detectors for training code that runs without an error and is wrong.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"debugkit {version('vla-debug-lab')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        # Eager: it is answered before typer asks which command was meant.
        bool, typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """What holds for every command."""


class Format(enum.StrEnum):
    """How a report is written."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    JUNIT = "junit"
    HTML = "html"


Select = Annotated[str | None, typer.Option(help="Codes or prefixes to examine, separated by commas: DK1,DK305.")]
Ignore = Annotated[str | None, typer.Option(help="Codes or prefixes to leave out, separated by commas.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write the report to this file.")]
As = Annotated[Format, typer.Option("--format", "-f", help="How the report is written.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="List each rule that was not examined, with its reason.")
]
FailOn = Annotated[Severity, typer.Option(help="The least severity that makes the exit code 1.")]


@app.command()
def check(
    target: Annotated[str, typer.Argument(help="`package.module:function` or `file.py:function`.")],
    select: Select = None,
    ignore: Ignore = None,
    format: As = Format.TEXT,
    output: Output = None,
    baseline: Annotated[Path | None, typer.Option(help="An earlier JSON report: its findings are known.")] = None,
    fail_on: FailOn = Severity.ERROR,
    verbose: Verbose = False,
) -> None:
    """Examine what a function builds: it returns (model, batch), or a dict of debugkit.check()'s arguments."""
    from debugkit.preflight import check as examine
    from debugkit.setup import SetupError
    from debugkit.target import TargetError, arguments_of

    try:
        with _stdout_kept_for(format, output):
            report = examine(**arguments_of(target), select=_codes(select), ignore=_codes(ignore), baseline=baseline)
    except (TargetError, SetupError, UnknownCodeError, ValueError) as error:
        _usage(str(error))
    _deliver(report, format, output, verbose)
    raise typer.Exit(_exit_code(report, fail_on))


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
)
def run(
    context: typer.Context,
    script: Annotated[Path, typer.Argument(help="The training script, unmodified.", exists=True, dir_okay=False)],
    select: Select = None,
    ignore: Ignore = None,
    format: As = Format.TEXT,
    output: Output = None,
    snapshots: Annotated[Path | None, typer.Option(help="The folder in which a failing step is saved.")] = None,
    fail_on: FailOn = Severity.ERROR,
    verbose: Verbose = False,
) -> None:
    """Run a training script under watch(): `debugkit run [OPTIONS] train.py ARGS…`.

    A script that fails keeps its exit code; otherwise it is 1 if something was found.
    """
    from debugkit.script import watch_script

    try:
        with _stdout_kept_for(format, output):
            outcome = watch_script(
                script, context.args, select=_codes(select), ignore=_codes(ignore), snapshot_dir=snapshots
            )
    except UnknownCodeError as error:
        _usage(str(error))
    _deliver(outcome.report, format, output, verbose)
    raise typer.Exit(outcome.exit_code or _exit_code(outcome.report, fail_on))


@app.command()
def rules(
    as_document: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    select: Select = None,
) -> None:
    """List the rules."""
    try:
        chosen = choose(all_rules(), _codes(select))
    except UnknownCodeError as error:
        _usage(str(error))
    if as_document:
        _write(json.dumps(as_json(chosen), indent=2))
        return
    family = ""
    for rule in chosen:
        if rule.family != family:
            family = rule.family
            _write(f"\n{family}")
        _write(f"  {rule.code}  {rule.severity:<7}  {rule.name:<28}  {rule.summary}")


@app.command()
def explain(code: Annotated[str, typer.Argument(help="A rule's code or name.")]) -> None:
    """Show a rule's page: what it finds, why that hurts, what to do, when it stays silent."""
    try:
        rule = find_rule(code)
    except UnknownCodeError as error:
        _usage(str(error))
    heading = (
        f"# {rule.code} {rule.name}\n\n{rule.severity}, {rule.certainty}, cost {rule.cost}, {', '.join(rule.modes)}"
    )
    text = f"{heading}\n\n{rule.page}\n\n{rule.url}"
    if not sys.stdout.isatty():
        _write(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))


@app.command()
def doctor(
    distributed: Annotated[
        bool, typer.Option(help="Let ranks talk to each other: of this machine, or those that a launcher started.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Seconds that ranks wait for each other, with --distributed.")] = 60.0,
) -> None:
    """Take the machine through the eight-row checklist: what each row means, what to type first, what was found."""
    from debugkit.doctor import Health, checklist

    if distributed:
        from debugkit.doctor.network_test import answers_of_all, is_rank, network, verdict

        if is_rank():  # torchrun has started this: only the ranks' lines, and only once
            answers = answers_of_all(timeout)
            for line in answers:
                _write_line(line)
            if len(answers) > 1:
                _write(verdict(answers))
            raise typer.Exit(1 if any(line.health is Health.BROKEN for line in answers) else 0)

    stage = ""
    lines: list[Line] = []
    for number, examined in enumerate(checklist(), start=1):
        row = examined.row
        if row.stage != stage:
            stage = row.stage
            _write(f"\n{stage.upper()}")
        _write(f"\n{number}  {row.name}\n   seen   {row.sign}\n   first  {row.command}")
        for line in examined.lines:
            _write_line(line)
        lines += examined.lines
    if distributed:
        _write("\nNETWORK")
        answers = []
        for line in network(timeout):
            _write_line(line)
            answers.append(line)
        _write(f"\n{verdict(answers)}")
        lines += answers
    raise typer.Exit(1 if any(line.health is Health.BROKEN for line in lines) else 0)


@app.command()
def replay(
    snapshot: Annotated[Path, typer.Argument(help="The folder that a snapshot was written to.")],
    build: Annotated[str | None, typer.Option(help="`package.module:function` that returns the model.")] = None,
    format: As = Format.TEXT,
    output: Output = None,
    verbose: Verbose = False,
) -> None:
    """Run the step of a snapshot again and report where it goes wrong."""
    from debugkit.replay import SnapshotError
    from debugkit.replay import replay as run_again

    try:
        with _stdout_kept_for(format, output):
            report = run_again(snapshot, build)
    except SnapshotError as error:
        _usage(str(error))
    _deliver(report, format, output, verbose)
    raise typer.Exit(_exit_code(report, Severity.ERROR))


dev_app = typer.Typer(help="For authors of rules, in a clone of the repository.", no_args_is_help=True)
app.add_typer(dev_app, name="dev")


@dev_app.command("rule")
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
        _usage(str(error))
    for path in written:
        _write(f"created  {path}")
    _write(f"\nReplace every TODO(author), then run: pytest tests/rules -k {code.lower()}")


@dev_app.callback()
def _dev() -> None:
    """For authors of rules, in a clone of the repository."""


def main() -> None:
    """The console script."""
    if sys.argv[1:2] == ["rules"] and set(sys.argv[2:]) <= {"--json"}:
        rules(as_document="--json" in sys.argv, select=None)  # Typer's own imports take longer than the list
    else:
        app()


def _codes(text: str | None) -> list[str] | None:
    return None if text is None else [code.strip() for code in text.split(",") if code.strip()]


def _stdout_kept_for(format: Format, output: Path | None) -> contextlib.AbstractContextManager[object]:
    machine = format is not Format.TEXT and output is None
    return contextlib.redirect_stdout(sys.stderr) if machine else contextlib.nullcontext()


def _deliver(report: Report, format: Format, output: Path | None, verbose: bool) -> None:
    renderers: dict[Format, Callable[[], str]] = {
        Format.TEXT: lambda: report.to_text(verbose=verbose),
        Format.JSON: lambda: json.dumps(report.to_json(), indent=2, allow_nan=False),
        Format.SARIF: lambda: json.dumps(report.to_sarif(), indent=2, allow_nan=False),
        Format.JUNIT: report.to_junit,
        Format.HTML: report.to_html,
    }
    if output is not None:
        output.write_text(renderers[format]().rstrip("\n") + "\n", encoding="utf-8")
        _write(f"Written to {output}.")
    elif format is Format.TEXT:
        report.print(verbose=verbose)
    else:
        _write(renderers[format]())


def _exit_code(report: Report, fail_on: Severity) -> int:
    failing = any(finding.severity.rank <= fail_on.rank for finding in report.findings)
    return int(failing or report.failure is not None)


def _write_line(line: Line) -> None:
    _write(f"{line.health.symbol}  {line.what:<24}  {line.seen}")
    if line.advice:
        _write(f"   {'':<24}  → {line.advice}")


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _usage(sentence: str) -> NoReturn:
    sys.stderr.write(f"debugkit: {sentence}\n")
    raise typer.Exit(2)


if __name__ == "__main__":
    main()
