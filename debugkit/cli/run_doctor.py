"""`debugkit doctor`: the checklist of this machine, and the network test between ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from debugkit.cli.output import write

if TYPE_CHECKING:
    from debugkit.doctor import Line


def doctor(
    distributed: Annotated[
        bool, typer.Option(help="Let ranks talk to each other: of this machine, or those that a launcher started.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Seconds that ranks wait for each other, with --distributed.")] = 60.0,
) -> None:
    """Check this machine against the eight-row checklist. For each row, show its meaning, a command and the result."""
    from debugkit.doctor import Health, checklist

    if distributed:
        from debugkit.doctor.network_test import answers_of_all, is_rank, network, verdict

        if is_rank():  # torchrun has started this: only the ranks' lines, and only once
            answers = answers_of_all(timeout)
            for line in answers:
                _write_line(line)
            if len(answers) > 1:
                write(verdict(answers))
            raise typer.Exit(1 if any(line.health is Health.BROKEN for line in answers) else 0)

    stage = ""
    lines: list[Line] = []
    for number, examined in enumerate(checklist(), start=1):
        row = examined.row
        if row.stage != stage:
            stage = row.stage
            write(f"\n{stage.upper()}")
        write(f"\n{number}  {row.name}\n   seen   {row.sign}\n   first  {row.command}")
        for line in examined.lines:
            _write_line(line)
        lines += examined.lines
    if distributed:
        write("\nNETWORK")
        answers = []
        for line in network(timeout):
            _write_line(line)
            answers.append(line)
        write(f"\n{verdict(answers)}")
        lines += answers
    raise typer.Exit(1 if any(line.health is Health.BROKEN for line in lines) else 0)


def _write_line(line: Line) -> None:
    write(f"{line.health.symbol}  {line.what:<24}  {line.seen}")
    if line.advice:
        write(f"   {'':<24}  → {line.advice}")
