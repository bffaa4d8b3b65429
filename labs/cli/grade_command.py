"""`lab grade`: one lab or several, for the terminal, a script, CI or a course."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labs.cli.attempt_commands import start_attempt
from labs.cli.console import err, notice, path_markup
from labs.cli.failures import RefusedError
from labs.cli.fan_out import Finished, fan_out
from labs.cli.lab_contents import contents_of
from labs.cli.one_document import one_document
from labs.cli.options import JsonOption, LabNumbers, WorkspaceOption
from labs.cli.which_lab import is_capstone, lab_of
from labs.grading.catalog import Lab, all_labs
from labs.learner.atomic_file import write_atomically
from labs.learner.workspace import Workspace, resolve
from labs.locale import message

if TYPE_CHECKING:
    from labs.grading.grades import Grade


def grade(
    numbers: LabNumbers = None,
    every: Annotated[bool, typer.Option("--all", help="Grade every lab.")] = False,
    as_json: JsonOption = False,
    junit: Annotated[Path | None, typer.Option(metavar="F", help="Write a JUnit report.", show_default=False)] = None,
    gradescope: Annotated[
        Path | None, typer.Option(metavar="F", help="Write a Gradescope results.json.", show_default=False)
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="How many labs to grade at once.")] = 1,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Use the seed of an earlier grade, to repeat it exactly.", show_default=False
        ),
    ] = None,
    all_checks: Annotated[
        bool, typer.Option("--all-checks", help="Run training and rollouts even if a cheap check failed.")
    ] = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Check your fix. Exit code 0: passed, 1: failed, 2: usage error, 3: the grader failed."""
    here = resolve(workspace)
    labs = _chosen(numbers, every, here)
    with one_document(as_json) as emit:
        for lab in labs:
            if here.attempt(lab).is_dir():
                here.started_attempt(lab)  # a deleted file is reported, not silently restored
            else:
                start_attempt(here, lab)
                told = "Lab {id} was not started. It is now, in {folder}"
                told = message(told, id=lab.id, folder=path_markup(here.attempt(lab)))
                err.print(f"[quiet]{told}[/]", soft_wrap=True)
        if jobs > 1 and len(labs) > 1:
            grades = _at_once(labs, here, jobs, seed, all_checks, quiet=as_json)
        else:
            grades = _one_by_one(labs, here, seed, all_checks, quiet=as_json)
        from labs import grading
        from labs.cli.show_grade import show_total

        contents = contents_of(labs) if as_json or junit is not None or gradescope is not None else {}
        document = grading.json_document(grades, contents)
        for lab, part, done in zip(labs, document["labs"], grades, strict=True):
            if is_capstone(lab):
                from labs.capstones.parts import faults_document

                part["faults"] = faults_document(lab, done)
        emit(document)
        if len(grades) > 1 and not as_json:
            show_total(grades)
        if junit is not None:
            write_atomically(junit, grading.junit(grades, contents).encode())
        if gradescope is not None:
            write_atomically(gradescope, json.dumps(grading.gradescope(grades, contents=contents), indent=2).encode())
    raise typer.Exit(grading.exit_code(grades))


def _chosen(numbers: list[str] | None, every: bool, here: Workspace) -> list[Lab]:
    if every and numbers:
        raise RefusedError("Give lab numbers or --all, not both.")
    if not every and not numbers:
        raise RefusedError("Which lab? `lab grade 03` grades one lab, `lab grade --all` grades all of them.")
    if not every:
        return list(dict.fromkeys(lab_of(number, here) for number in numbers or ()))
    from labs.grading.extras import missing_modules

    able = []
    for lab in all_labs():
        missing = missing_modules(lab)
        if missing:
            told = message("Lab {id} is skipped: {missing} is not installed.", id=lab.id, missing=", ".join(missing))
            err.print(f"[warn]{told}[/]", soft_wrap=True)
        else:
            able.append(lab)
    return able


def _one_by_one(labs: list[Lab], here: Workspace, seed: int | None, all_checks: bool, quiet: bool) -> list[Grade]:
    from labs.cli.show_grade import show_grade, stream
    from labs.learner.graded_attempt import grade_attempt

    grades = []
    with _server(len(labs) > 1) as server:
        for lab in labs:
            with stream(lab, quiet) as on_check:
                done, message = grade_attempt(
                    here, lab, seed=seed, all_checks=all_checks, on_check=on_check, server=server
                )
            grades.append(done)
            if message:
                notice(message)
            if not quiet:
                show_grade(done, lab, here.attempt(lab))
    return grades


def _at_once(
    labs: list[Lab], here: Workspace, jobs: int, seed: int | None, all_checks: bool, quiet: bool
) -> list[Grade]:
    from labs.cli.show_grade import show_verdict

    common = ["--json", "--workspace", str(here.root), *(["--all-checks"] if all_checks else [])]
    common += ["--seed", str(seed)] if seed is not None else []
    by_id = {lab.id: lab for lab in labs}
    grades: dict[str, Grade] = {}
    for finished in fan_out({lab.id: ["grade", lab.id, *common] for lab in labs}, jobs):
        grades[finished.key] = _grade_of(by_id[finished.key], finished)
        if not quiet:
            show_verdict(grades[finished.key], by_id[finished.key])
    return [grades[lab.id] for lab in labs]


def _grade_of(lab: Lab, finished: Finished) -> Grade:
    """The grade that another `lab` process printed; if it printed none, the grader failed."""
    from labs.grading.grades import Grade
    from labs.learner.graded_attempt import grade_from_json

    try:
        document = json.loads(finished.stdout)
    except ValueError:
        document = {
            "labs": [],
            "error": f"`lab grade {lab.id}` ended with exit code {finished.exit_code} and without a result.",
        }
    for part in document["labs"]:
        return grade_from_json(part)
    return Grade(lab.id, lab.slug, "error", document["error"], 0.0, 0)


def _server(wanted: bool) -> contextlib.AbstractContextManager[Any]:
    """A warm fork server saves time from the second lab on; without one, each grade starts an interpreter."""
    from labs.grading import ForkServer, SandboxError

    if wanted:
        with contextlib.suppress(SandboxError):
            return ForkServer()
    return contextlib.nullcontext()
