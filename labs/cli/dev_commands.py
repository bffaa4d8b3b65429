"""`lab dev`: what an author of labs uses."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.markup import escape

from labs.cli.console import err, next_command, out
from labs.cli.failures import RefusedError
from labs.cli.fan_out import fan_out
from labs.cli.one_document import one_document
from labs.cli.options import JsonOption, LabNumbers
from labs.grading.catalog import Lab, all_labs, find

dev = typer.Typer(name="dev", help="For authors: verify, new, figures.", no_args_is_help=True)


@dev.command()
def verify(
    numbers: LabNumbers = None,
    full: Annotated[bool, typer.Option("--full", help="Every seed; record the result beside the solution.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="How many labs at once.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Hold labs (default: all) against the collection's law. Exit 1 if one breaks it."""
    from labs.cli.show_verification import show_summary, show_verification

    labs = [find(number) for number in numbers or ()] or list(all_labs())
    with one_document(as_json) as emit:
        results = []
        for result in _at_once(labs, full, jobs) if jobs > 1 and len(labs) > 1 else _one_by_one(labs, full):
            results.append(result)
            if not as_json:
                show_verification(result)
        results.sort(key=lambda result: result["id"])
        emit({"schema": 1, "labs": results})
    if not as_json:
        show_summary(results)
    raise typer.Exit(int(not all(result["ok"] for result in results)))


@dev.command()
def new(
    number: Annotated[str, typer.Argument(metavar="NN", help="Two digits; the first is the chapter's.")],
    slug: Annotated[str, typer.Argument(metavar="SLUG", help="The fault's name, e.g. silent_broadcast.")],
    chapter: Annotated[str, typer.Option(help="The chapter, e.g. shapes.")],
) -> None:
    """Make the skeleton of a lab; `lab dev verify` then says what to write."""
    from labs.authoring.scaffold import NewLab, ScaffoldError, scaffold

    try:
        made = scaffold(NewLab(number, slug, chapter))
    except ScaffoldError as error:
        raise RefusedError(str(error)) from None
    out.print()
    for path in made:
        out.print(f"  [good]+[/] {escape(str(path))}", soft_wrap=True)
    out.print()
    next_command(f"lab dev verify {number}", "says what is still to be written")
    out.print()


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


def _one_by_one(labs: list[Lab], full: bool) -> Any:
    from labs.authoring.verify import verify as verify_lab
    from labs.grading import ForkServer

    with ForkServer() as server:
        for lab in labs:
            with err.status(f"[quiet]lab {lab.id}[/]", spinner_style="quiet") as status:

                def say(doing: str, lab: Lab = lab, status: Any = status) -> None:
                    status.update(f"[quiet]lab {lab.id} · {escape(doing)}[/]")

                result = verify_lab(lab, server, full=full, say=say)
            yield result.to_json()


def _at_once(labs: list[Lab], full: bool, jobs: int) -> Any:
    commands = {lab.id: ["dev", "verify", lab.id, "--json", *(["--full"] if full else [])] for lab in labs}
    for finished in fan_out(commands, jobs):
        try:
            document = json.loads(finished.stdout)
        except ValueError:
            document = {
                "labs": [],
                "error": f"ended with exit code {finished.exit_code}: {finished.stderr.strip()[-300:]}",
            }
        yield from document["labs"] or [_unfinished(find(finished.key), document["error"])]


def _unfinished(lab: Lab, why: str) -> dict[str, Any]:
    breach = {"law": "verifies", "sentence": why}
    return {"id": lab.id, "slug": lab.slug, "ok": False, "grades": 0, "breaches": [breach]}
