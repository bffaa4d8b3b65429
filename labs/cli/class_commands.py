"""`lab class`: the commands for instructors."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.text import Text

from labs.cli.console import OUTCOME_MARKS, err, out, path_markup
from labs.cli.lab_contents import contents_of
from labs.cli.one_document import one_document
from labs.cli.options import JsonOption
from labs.grading.catalog import all_labs, find
from labs.grading.errors import UsageError
from labs.grading.submission_text import clean
from labs.locale import message, translated

if TYPE_CHECKING:
    from labs.classroom.check import Difference
    from labs.classroom.results import Result

classroom = typer.Typer(
    name="class", help="For instructors: grade, key, check, autograde, template, bundle.", no_args_is_help=True
)

KeyOption = Annotated[
    Path | None,
    typer.Option("--key", metavar="FILE", help="The class's key. Default: OUT/class.key.", show_default=False),
]


@classroom.command()
def grade(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The submissions, as the course platform exported them.")
    ],
    numbers: Annotated[
        list[str] | None, typer.Argument(metavar="[NN]...", help="The labs. Default: all.", show_default=False)
    ] = None,
    to: Annotated[Path, typer.Option("--out", metavar="OUT", help="Where the results are.")] = Path("class-results"),
    key: KeyOption = None,
    jobs: Annotated[int, typer.Option(min=1, help="How many submissions to grade at once.")] = 1,
    part: Annotated[
        str | None,
        typer.Option("--part", metavar="K/N", help="Only this part, such as 2/4. Needs --key.", show_default=False),
    ] = None,
    graded_in: Annotated[
        list[Path] | None,
        typer.Option(
            "--from", metavar="OUT", help="Take over the results of another run. Repeatable.", show_default=False
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Grade the submissions of a class; what an earlier run graded is kept.

    Exit code 0: every submission was graded. 2: usage error. 3: the grader failed on one; repeat the command.
    """
    from labs.classroom.part import WHOLE, Part
    from labs.classroom.session import PAGES, ClassSession

    if (part or graded_in) and not (key and key.is_file()):
        raise UsageError(
            "Runs that share results need one key: create it with `lab class key FILE`, and give --key FILE."
        )
    labs = list(dict.fromkeys(find(number) for number in numbers)) if numbers else list(all_labs())
    chosen = Part.read(part) if part else WHOLE
    session = ClassSession(folder, labs, to, key, part=chosen, graded_in=graded_in or ())
    with one_document(as_json) as emit:
        known = len(session.known)
        if known and not as_json:
            told = message("{known} results of an earlier run still hold.", known=known)
            out.print(f"\n  [quiet]{told}[/]")
        for result in session.grade(jobs):
            if not as_json:
                _show(result)
        emit(session.write_pages())
        if not as_json:
            _show_total(list(session.known.values()), [to / name for name in PAGES], session.not_read)
    raise typer.Exit(3 if any(one.verdict == "error" for one in session.known.values()) else 0)


@classroom.command(name="key")
def create_key(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Where the key is written.")] = Path("class.key"),
) -> None:
    """Create a class's key, for runs on several machines. A key that exists is kept."""
    from labs.classroom.key import read_key

    existed = path.exists()
    read_key(path)
    if existed:
        out.print(f"  [quiet]{translated('kept')}[/] {path_markup(path)}", soft_wrap=True)
    else:
        _show_written(path)


@classroom.command()
def check(
    folder: Annotated[Path, typer.Argument(metavar="OUT", help="The folder that `lab class grade` wrote.")] = Path(
        "class-results"
    ),
    key: KeyOption = None,
) -> None:
    """Check the signed results, and the files with them. Exit code 1 if one was changed, or has another key."""
    from labs.classroom.session import changed_results

    count, changed = changed_results(folder, key)
    for one in changed:
        who = f"{clean(one.student)}, {_lab(one.lab)}: " if one.student else ""
        line = Text.assemble("  ", ("✗", "bad"), f" {who}", (_told(one), "quiet" if who else ""))
        out.print(line, soft_wrap=True)
    if changed:
        rows = len({(one.student, one.lab) for one in changed if one.student})
        told = (
            message("{rows} of {count} results were changed, or have another key's signature.", rows=rows, count=count)
            if rows
            else message("The {count} results have the class's signature, but a file was changed.", count=count)
        )
        err.print(f"lab: {told}")
        raise typer.Exit(1)
    told = message("{count} results, each with the class's signature", count=count)
    out.print(f"\n  [good]✓[/] {told}\n")


@classroom.command()
def autograde(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The files of one learner.")],
    numbers: Annotated[list[str], typer.Argument(metavar="NN...", help="The labs.")],
    gradescope: Annotated[
        Path | None, typer.Option(metavar="F", help="Write a Gradescope results.json.", show_default=False)
    ] = None,
    junit: Annotated[Path | None, typer.Option(metavar="F", help="Write a JUnit report.", show_default=False)] = None,
    seed: Annotated[int | None, typer.Option(min=0, metavar="N", show_default=False, help="The seed.")] = None,
) -> None:
    """Grade one learner's files, as an autograder does.

    Exit code 0: passed, 1: failed, 2: usage error, 3: the grader failed.
    """
    from labs import grading
    from labs.classroom.one_learner import grade_folder
    from labs.cli.show_grade import show_grade
    from labs.learner.atomic_file import write_atomically

    labs = list(dict.fromkeys(find(number) for number in numbers))
    grades = []
    for lab, done in grade_folder(folder, labs, seed):
        show_grade(done, lab)
        grades.append(done)
    contents = contents_of(labs) if junit is not None or gradescope is not None else {}
    if junit is not None:
        write_atomically(junit, grading.junit(grades, contents).encode())
    if gradescope is not None:
        write_atomically(gradescope, json.dumps(grading.gradescope(grades, contents=contents), indent=2).encode())
    raise typer.Exit(grading.exit_code(grades))


@classroom.command()
def template(
    platform: Annotated[
        str, typer.Argument(metavar="NAME", help="gradescope, github, matrix, docker or devcontainer.")
    ],
    numbers: Annotated[list[str], typer.Argument(metavar="NN...", help="The labs that are graded.")],
    to: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the files are written.")] = Path(),
) -> None:
    """Write the files that a platform needs: an autograder, a workflow, a container."""
    from labs.classroom.write_templates import write_templates

    labs = list(dict.fromkeys(find(number) for number in numbers))
    for path in write_templates(platform, labs, to):
        _show_written(path)


def _told(one: Difference) -> str:
    sentences = {
        "unsigned": message("in {file}, it does not have this key's signature", file=one.file),
        "different": message("in {file}, it is not the signed result", file=one.file),
        "missing": message("it is missing from {file}", file=one.file),
        "extra": message("in {file}, it was added", file=one.file),
        "file": message("{file} is not as `lab class grade` wrote it", file=one.file),
    }
    return sentences[one.kind]


def _lab(number: str) -> str:
    return message("lab {id}", id=clean(number))


def _show_written(path: Path) -> None:
    out.print(f"  [quiet]{translated('written')}[/] {path_markup(path)}", soft_wrap=True)


@classroom.command()
def bundle(
    to: Annotated[Path, typer.Argument(metavar="OUT", help="A folder, or an archive: .zip or .tar.gz.")],
    labs: Annotated[
        str | None, typer.Option("--labs", metavar="NN,…", help="The labs, such as 03,41. Default: all.")
    ] = None,
    hints: Annotated[int, typer.Option(min=1, max=3, help="How many of the three hints it has.")] = 2,
    name: Annotated[str, typer.Option(metavar="NAME", help="The pack's name.")] = "course",
    version: Annotated[str, typer.Option("--pack-version", metavar="V", help="The pack's version.")] = "1",
) -> None:
    """Write a course pack: some labs with all that grades them, without their solutions."""
    from labs.classroom.bundle import write_bundle
    from labs.learner.pack import Pack, checked

    numbers = [one for one in (labs or "").replace(",", " ").split() if one]
    chosen = list(dict.fromkeys(find(number) for number in numbers)) or list(all_labs())
    files = write_bundle(to, chosen, pack=checked(Pack(name, version, solutions=False)), hints=hints)
    size = f"{len(chosen)} {'lab' if len(chosen) == 1 else 'labs'}, {len(files)} files"
    out.print(f"  [quiet]{translated('written')}[/] {path_markup(to)}  [quiet]{size}[/]", soft_wrap=True)


def _show(result: Result) -> None:
    sign, style = OUTCOME_MARKS.get(result.verdict, ("–", "quiet"))
    line = Text.assemble("  ", (sign, style), f" {clean(result.student)}  ", (_lab(result.lab), "quiet"), "  ")
    line.append(result.wrong_fix or translated(clean(result.reason)).partition("\n")[0], "quiet")
    line.truncate(max(40, out.width - 1), overflow="ellipsis")
    line.rstrip()
    out.print(line, soft_wrap=True)


def _show_total(results: list[Result], pages: list[Path], not_read: list[str]) -> None:
    counts = Counter(one.verdict for one in results)
    told = ", ".join(
        message("{count} {verdict}", count=counts[verdict], verdict=translated(verdict))
        for verdict in ("passed", "failed", "missing", "error")
        if counts[verdict]
    )
    learners = len({one.student for one in results})
    who = message("1 learner") if learners == 1 else message("{learners} learners", learners=learners)
    out.print(f"\n  [strong]{who}[/]  {told}")
    if not_read:
        names = escape(clean(", ".join(not_read)))
        ignored = message("not read: {names}: a folder or a zip for each learner", names=names)
        out.print(f"  [warn]{ignored}[/]", soft_wrap=True)
    for page in pages:
        _show_written(page)
    if counts["error"]:
        err.print(f"[warn]{translated('The grader failed on some submissions. Run the same command again.')}[/]")
    out.print()
