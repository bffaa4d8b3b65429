"""`debugkit check`, `run` and `replay`: examine a program and deliver the report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from debugkit.cli.output import (
    As,
    FailOn,
    Format,
    Ignore,
    Output,
    Select,
    Verbose,
    deliver,
    exit_code,
    stdout_kept_for,
    usage,
)
from debugkit.cli.settings import Settings, SettingsError, read_settings
from debugkit.finding import Severity
from debugkit.rule import UnknownCodeError, codes_in


def check(
    target: Annotated[str, typer.Argument(help="`package.module:function` or `file.py:function`.")],
    select: Select = None,
    ignore: Ignore = None,
    format: As = Format.TEXT,
    output: Output = None,
    baseline: Annotated[Path | None, typer.Option(help="An earlier JSON report: its findings are known.")] = None,
    fail_on: FailOn = None,
    verbose: Verbose = False,
) -> None:
    """Examine what a function builds: it returns (model, batch), or a dict of debugkit.check()'s arguments."""
    settings = _settings()
    from debugkit.preflight import check as examine
    from debugkit.setup import SetupError
    from debugkit.target import TargetError, arguments_of

    try:
        with stdout_kept_for(format, output):
            report = examine(
                **arguments_of(target),
                select=settings.select if select is None else codes_in(select),
                ignore=settings.ignore if ignore is None else codes_in(ignore),
                baseline=baseline or settings.baseline,
            )
    except (TargetError, SetupError, UnknownCodeError, ValueError) as error:
        usage(str(error))
    report = settings.accept_by_path(report)
    deliver(report, format, output, verbose)
    raise typer.Exit(exit_code(report, fail_on or settings.fail_on))


def run(
    context: typer.Context,
    script: Annotated[Path, typer.Argument(help="The training script, unmodified.", exists=True, dir_okay=False)],
    select: Select = None,
    ignore: Ignore = None,
    format: As = Format.TEXT,
    output: Output = None,
    snapshots: Annotated[Path | None, typer.Option(help="The folder in which a failing step is saved.")] = None,
    experiments: Annotated[
        bool, typer.Option(help="After the script, repeat one call of its model with changed inputs, as `check` does.")
    ] = True,
    fail_on: FailOn = None,
    verbose: Verbose = False,
) -> None:
    """Run a training script under watch(), then examine its model: `debugkit run [OPTIONS] train.py ARGS…`.

    A script that fails keeps its exit code; otherwise it is 1 if something was found. Under torchrun each rank has its
    own report: with `--output report.json`, that of rank 1 is report.rank1.json.
    """
    from debugkit.distributed.launch import launched
    from debugkit.preflight import to_a_terminal
    from debugkit.script import watch_script

    if output is not None and (one := launched()) is not None:
        output = one.own_file(output)

    settings = _settings()
    try:
        with stdout_kept_for(format, output):
            outcome = watch_script(
                script,
                context.args,
                select=settings.select if select is None else codes_in(select),
                ignore=list(settings.ignore or ()) if ignore is None else codes_in(ignore),
                snapshot_dir=snapshots,
                experiments=experiments,
                progress=to_a_terminal,
            )
    except UnknownCodeError as error:
        usage(str(error))
    report = settings.accept_by_path(outcome.report)
    deliver(report, format, output, verbose)
    raise typer.Exit(outcome.exit_code or exit_code(report, fail_on or settings.fail_on))


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
        with stdout_kept_for(format, output):
            report = run_again(snapshot, build)
    except SnapshotError as error:
        usage(str(error))
    deliver(report, format, output, verbose)
    raise typer.Exit(exit_code(report, Severity.ERROR))


def _settings() -> Settings:
    try:
        return read_settings(Path())
    except SettingsError as error:
        usage(str(error))
