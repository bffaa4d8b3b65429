"""`lab dev`: the commands for authors of labs."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from labs.cli.console import err, next_command, out
from labs.cli.failures import RefusedError
from labs.cli.one_document import one_document
from labs.cli.options import JsonOption, LabNumber, LabNumbers
from labs.cli.which_lab import shipped_capstones, shipped_lab
from labs.grading.catalog import all_labs, find

if TYPE_CHECKING:
    from rich.status import Status

    from labs.grading.catalog import Lab

dev = typer.Typer(
    name="dev", help="For authors: new, verify, margins, mutate, show, store, figures, mystery.", no_args_is_help=True
)

VariantName = Annotated[str, typer.Argument(metavar="NAME", help="The wrong fix, or alternative_…", show_default=False)]
FileOption = Annotated[
    str | None,
    typer.Option("--file", help="The editable file that it changes. Default: the first.", show_default=False),
]


@dev.command()
def verify(
    numbers: LabNumbers = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Grade only labs that changed since their last full verification.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="All seeds; record the result beside the solution.")] = False,
    seeds: Annotated[
        int,
        typer.Option(
            "--seeds",
            min=0,
            help="Run the structural checks of every correct fix on so many seeds, such as 200, but for recorded ones.",
        ),
    ] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="How many labs to verify at once.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Check labs (default: all) against the requirements for labs. Exit 1 if there is a violation."""
    from labs.authoring.plan import plan
    from labs.authoring.verify_many import run_tasks
    from labs.cli.show_verification import show_summary, show_verification

    labs = _labs_and_capstones(numbers)
    with one_document(as_json) as emit, err.status("[quiet]reading the labs[/]", spinner_style="quiet") as status:
        results = []
        tasks = plan(labs, changed=changed)
        for result in run_tasks(
            tasks, full=full, jobs=jobs, chance_seeds=seeds, say=lambda step: status.update(f"[quiet]{escape(step)}[/]")
        ):
            results.append(result)
            if not as_json:
                show_verification(result)
        results.sort(key=lambda result: result["id"])
        emit({"schema": 2, "labs": results})
    if not as_json:
        show_summary(results)
    raise typer.Exit(int(not all(result["ok"] for result in results)))


@dev.command()
def margins(
    numbers: LabNumbers = None,
    seeds: Annotated[int, typer.Option(min=2, help="How many seeds.")] = 8,
) -> None:
    """List the comparisons of structural checks (default: of all labs) that correct fixes meet by a small margin."""
    from labs.authoring.bench import BenchError
    from labs.authoring.margins import near_bounds
    from labs.authoring.verify_many import OnDemandServer
    from labs.cli.show_verification import show_margins

    with OnDemandServer() as server:
        for lab in _labs_and_capstones(numbers):
            with err.status(f"[quiet]lab {lab.id}[/]", spinner_style="quiet") as status:
                say = _Progress(lab, status)
                try:
                    found = near_bounds(lab, server, seeds, say)
                except BenchError as error:
                    raise RefusedError(str(error)) from None
            show_margins(lab, found)


@dev.command()
def new(
    number: Annotated[str, typer.Argument(metavar="NN", help="Two digits; the first is the chapter's.")],
    slug: Annotated[str, typer.Argument(metavar="SLUG", help="The symptom in a few words, e.g. gripper_never_closes.")],
    chapter: Annotated[str, typer.Option(help="The chapter, e.g. shapes.")],
) -> None:
    """Create the files of a new lab. `lab dev verify` then lists what is still to be written."""
    from labs.authoring.scaffold import NewLab, ScaffoldError, scaffold

    try:
        made = scaffold(NewLab(number, slug, chapter))
    except ScaffoldError as error:
        raise RefusedError(str(error)) from None
    out.print()
    for path in made:
        out.print(f"  [good]+[/] {escape(str(path))}", soft_wrap=True)
    out.print()
    next_command(f"lab dev verify {number}", "lists what is still to be written")
    out.print()


@dev.command()
def show(
    number: LabNumber,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A wrong fix or alternative. Default: list them.")
    ] = None,
    file: FileOption = None,
    to: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write it here instead of to stdout.", show_default=False),
    ] = None,
) -> None:
    """List a lab's wrong fixes and alternatives, or print one as the whole file that it makes."""
    from labs.authoring.edits import EditError
    from labs.authoring.variants import alternatives, find_variant, wrong_fixes
    from labs.cli.show_verification import show_variants

    lab = shipped_lab(number)
    try:
        if name is None:
            show_variants([*wrong_fixes(lab), *alternatives(lab)])
            return
        variant = find_variant(lab, name)
        edited = file or next(iter(variant.edit.blocks))
        whole = variant.files(lab).get(edited)
    except EditError as error:
        raise RefusedError(str(error)) from None
    if whole is None:
        raise RefusedError(f"{edited} is not one of the editable files of lab {lab.id}: {', '.join(lab.editable)}.")
    if to is None:
        sys.stdout.write(whole)
    else:
        to.write_text(whole, encoding="utf-8")


@dev.command()
def store(
    number: LabNumber,
    name: VariantName,
    whole: Annotated[Path, typer.Argument(metavar="FILE", help="The whole file, edited.", show_default=False)],
    refused_by: Annotated[
        str | None, typer.Option("--refused-by", metavar="CHECK", help="The check that refuses it.", show_default=False)
    ] = None,
    why: Annotated[
        str | None, typer.Option("--why", metavar="SENTENCE", help="Why it is wrong, or correct.", show_default=False)
    ] = None,
    file: FileOption = None,
) -> None:
    """Store a whole file as a wrong fix or an alternative: as a small edit of the starter or the solution.

    A name that begins with alternative_ is stored beside the solution, any other as a wrong fix. Storing an existing
    name again replaces its edit and keeps its check and sentence unless new ones are given.
    """
    from labs.authoring.edits import EditError
    from labs.authoring.store_variant import store_variant

    try:
        text = whole.read_text(encoding="utf-8")
        path = store_variant(shipped_lab(number), name, text, file=file, refused_by=refused_by, why=why)
    except EditError as error:
        raise RefusedError(str(error)) from None
    out.print(f"  [good]+[/] {escape(str(path))}", soft_wrap=True)
    out.print(path.read_text(encoding="utf-8"), markup=False, soft_wrap=True)


@dev.command()
def figures(numbers: LabNumbers = None) -> None:
    """Make the lessons' figures from real runs (default: of every lab that has some)."""
    from labs.authoring.figures import FiguresError, has_figures, make_figures

    wanted = [find(number) for number in numbers or ()]
    for lab in wanted:
        if not has_figures(lab):
            raise RefusedError(
                f"Lab {lab.id} makes no figures: it has no figures.py with a function figures(out: Path)."
            )
    for lab in wanted or [lab for lab in all_labs() if has_figures(lab)]:
        try:
            made = make_figures(lab)
        except FiguresError as error:
            raise RefusedError(str(error)) from None
        for path in made:
            out.print(
                f"  [good]✓[/] {escape(str(path))}  [quiet]{path.stat().st_size / 1024:.0f} KiB[/]", soft_wrap=True
            )


@dev.command()
def mutate(
    numbers: LabNumbers = None,
    jobs: Annotated[int, typer.Option(min=1, help="How many processes grade at once.")] = 1,
    only: Annotated[str | None, typer.Option(metavar="OPERATOR", help="Only the mutants of one operator.")] = None,
    holes: Annotated[bool, typer.Option("--holes", help="Only the mutants that mutants.json lists as holes.")] = False,
    names: Annotated[
        bool, typer.Option("--names", help="Run every check on every mutant, to see which get a wrong fix's name.")
    ] = False,
    outcomes: Annotated[bool, typer.Option("--outcomes", help="Train what the structural checks pass.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Record the result in the lab's mutants.json.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Test the checks of labs (default: all) with mutants of their solutions. Exit 1 if one is not refused."""
    from labs.authoring.bench import BenchError
    from labs.authoring.mutation.catalogue import UnknownOperatorError
    from labs.authoring.mutation.mutate import mutate as mutate_lab
    from labs.authoring.mutation.reasons import ReasonsError
    from labs.authoring.mutation.record import write_record
    from labs.cli.show_mutation import as_json as to_json
    from labs.cli.show_mutation import show_mutation

    if write and (only is not None or holes):
        raise RefusedError("mutants.json holds all mutants: leave out --only and --holes, or --write.")
    documents = []
    with one_document(as_json) as emit:
        for lab in [find(number) for number in numbers or ()] or all_labs():
            with err.status(f"[quiet]lab {lab.id}[/]", spinner_style="quiet") as status:
                say = _Progress(lab, status)
                try:
                    result = mutate_lab(lab, jobs=jobs, only=only, holes=holes, outcomes=outcomes, names=names, say=say)
                except (BenchError, ReasonsError, UnknownOperatorError) as error:
                    raise RefusedError(str(error)) from None
            if write:
                write_record(lab, result.record)
            if not as_json:
                show_mutation(result)
            documents.append(to_json(result))
        emit({"schema": 1, "labs": documents})
    raise typer.Exit(int(any(one["counts"]["holes"] or one["refused_despite_reason"] for one in documents)))


@dev.command()
def mystery(
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds, from 1 on.")] = 20,
    scratch: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where the result of each seed is kept; a later run continues.")
    ] = Path(".mystery-seeds"),
    write: Annotated[bool, typer.Option("--write", help="Record the result in labs/mystery/measured.json.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure the mysteries of many seeds. Exit 1 if one is unfair."""
    from labs.mystery.measured import measure, record_of, write_record

    results = []
    with one_document(as_json) as emit, err.status("[quiet]seed 1[/]", spinner_style="quiet") as status:
        for result in measure(seeds, scratch):
            results.append(result)
            status.update(f"[quiet]seed {result['seed']}[/]")
            for problem in result["problems"]:
                err.print(f"seed {result['seed']}: {problem}", markup=False, soft_wrap=True)
        record = record_of(results)
        emit(record)
    if write:
        write_record(record)
    if not as_json:
        seen = sum(count > 0 for count in record["operators"].values())
        out.print(f"  {len(results)} seeds, {seen} operators, {record['median seconds']} s of CPU time for each")
    raise typer.Exit(int(any(result["problems"] for result in results)))


def _labs_and_capstones(numbers: LabNumbers) -> list[Lab]:
    """The ones of these numbers; all of them without any."""
    return [shipped_lab(number) for number in numbers or ()] or [*all_labs(), *shipped_capstones()]


_MINUTE_S = 60


class _Progress:
    """Shows how far a long command is: in the status line of a terminal, and as a line each minute elsewhere."""

    def __init__(self, lab: Lab, status: Status) -> None:
        self._lab, self._status, self._said = lab, status, time.monotonic()

    def __call__(self, doing: str) -> None:
        self._status.update(f"[quiet]lab {self._lab.id} · {escape(doing)}[/]")
        if not err.is_terminal and time.monotonic() - self._said >= _MINUTE_S:
            self._said = time.monotonic()
            err.print(f"lab {self._lab.id} · {doing}", markup=False, soft_wrap=True)
