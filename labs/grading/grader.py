"""`grade()`: runs a lab's checks against a submission and gives the verdict."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from labs.grading.answers import check_answers, not_run, reason
from labs.grading.catalog import LABS_ROOT, SOLUTIONS_ROOT, Lab
from labs.grading.declarations import KINDS, Kind
from labs.grading.errors import CheckError, SandboxError, SubmissionFileError
from labs.grading.extras import require_extras
from labs.grading.files import read_submission
from labs.grading.grades import CheckResult, Grade
from labs.grading.plugin import ChecksPlugin
from labs.grading.runner import declared_by, run_checks
from labs.grading.sandbox.launch import ColdLauncher, Launcher
from labs.grading.sandbox.limits import Limits
from labs.grading.sandbox.session import Job, Session
from labs.grading.submission import Submission, probes_in

WAITING = 2.0
"""The wall time of a grade as a multiple of its CPU time: what is left over is for waiting."""

Source = Path | str | Mapping[str, str | bytes]
"""A folder with the lab's editable files, or their text by name."""


def grade(
    lab: Lab,
    submission: Source,
    *,
    seed: int | None = None,
    all_checks: bool = False,
    on_check: Callable[[CheckResult], None] | None = None,
    server: Launcher | None = None,
    outcome_seed: int | None = None,
    kinds: Collection[Kind] = KINDS,
    answers: bool = True,
) -> Grade:
    """Grade a submission: a folder with the lab's editable files, or their text by name.

    `seed` repeats an earlier grade exactly. `all_checks` runs the outcome checks even if a structural one failed.
    `on_check` is called with each CheckResult as soon as its check ends. `server` is a running ForkServer; without
    one the child is a fresh interpreter. `outcome_seed` replaces the draw from `lab.seeds`. Only checks of `kinds`
    run, and only they decide the verdict. Without `answers`, the lab's questions are left out and code alone is graded.

    Whatever the submission does, the result is a Grade. Raises MissingExtraError if the lab needs a package that is not
    installed, and KeyboardInterrupt when interrupted; the child is gone in either case.
    """
    require_extras(lab)
    started = time.monotonic()
    seed = secrets.randbelow(2**31) if seed is None else seed
    try:
        try:
            found = _grade(
                lab,
                submission,
                seed,
                lab.seeds if outcome_seed is None else (outcome_seed,),
                all_checks=all_checks,
                on_check=on_check,
                server=server,
                kinds=kinds,
                answers=answers,
            )
        except SubmissionFileError as error:
            found = _nothing_ran(lab, str(error), seed, answers)
    except (CheckError, SandboxError) as error:
        found = Grade(lab.id, lab.slug, "error", str(error), 0.0, seed)
    return replace(found, seconds=time.monotonic() - started)


def _grade(
    lab: Lab,
    source: Source,
    seed: int,
    outcome_seeds: tuple[int, ...],
    *,
    all_checks: bool,
    on_check: Callable[[CheckResult], None] | None,
    server: Launcher | None,
    kinds: Collection[Kind],
    answers: bool,
) -> Grade:
    job = job_of(lab, read_submission(lab, source), source)
    answered = check_answers(lab, source) if answers else ()
    with _handle(lab, job, seed, server) as handle:
        plugin = ChecksPlugin(
            handle,
            grade_seed=seed,
            outcome_seeds=outcome_seeds,
            all_checks=all_checks,
            on_check=on_check,
            kinds=kinds,
        )
        run_checks(lab, plugin)
        if on_check is not None:
            for one in answered:
                on_check(one)
        return replace(_verdict(lab, plugin, handle, seed, answered), output=handle.output, evidence=handle.evidence)


def _verdict(lab: Lab, plugin: ChecksPlugin, handle: Submission, seed: int, answered: tuple[CheckResult, ...]) -> Grade:
    checks = tuple(plugin.results.values())
    absent = [check.id for check in plugin.expected if check.id not in plugin.results]
    fault = plugin.fault
    if fault is None and not checks:
        fault = f"{lab.name}/checks.py declares no check."
    if fault is None and absent:
        fault = f"{', '.join(absent)} did not run: the name of a check begins with test_ and is used once."
    if fault is not None:
        return Grade(lab.id, lab.slug, "error", fault, 0.0, seed, checks=checks)
    every = (*checks, *answered)
    if all(one.outcome == "passed" for one in checks):
        missing = reason(answered)
        return Grade(lab.id, lab.slug, "failed" if missing else "passed", missing, 0.0, seed, checks=every)
    # What a submission measured until its time was up names no wrong fix: a correct one measures the same so far.
    recognised = None if handle.timed_out else plugin.declared.recognise(handle.evidence)
    if recognised is not None:
        wrong, sentence = recognised
        return Grade(lab.id, lab.slug, "failed", sentence, 0.0, seed, wrong.name, every)
    return Grade(lab.id, lab.slug, "failed", handle.ending or _count(checks), 0.0, seed, checks=every)


def _count(checks: tuple[CheckResult, ...]) -> str:
    failed = [one for one in checks if one.outcome == "failed"]
    if not failed:
        return "No check passed."
    noun = "check" if len(checks) == 1 else "checks"
    return f"{len(failed)} of {len(checks)} {noun} failed; the first: {failed[0].title}."


def _nothing_ran(lab: Lab, why: str, seed: int, answers: bool) -> Grade:
    """The grade of files that cannot be graded: no check ran."""
    checks = tuple(
        CheckResult(one.id, one.title, one.kind, "not_run", why, property=one.property, instrument=one.instrument)
        for one in declared_by(lab).checks
    )
    return Grade(lab.id, lab.slug, "failed", why, 0.0, seed, checks=(*checks, *(not_run(lab, why) if answers else ())))


def job_of(lab: Lab, files: dict[str, str], source: Source) -> Job:
    """What the child of this lab needs."""
    at = Path(source).absolute() if isinstance(source, (str, Path)) else Path()
    shown_as = {name: str(at / name) for name in files}
    allowed_s = lab.timeout_s * patience(os.environ.get("LAB_PATIENCE"))
    limits = Limits(wall_s=WAITING * allowed_s, cpu_s=math.ceil(allowed_s), memory_mb=lab.memory_mb)
    # In a clone, the Git history and the lessons also contain every solution.
    elsewhere = (LABS_ROOT.parent / ".git", LABS_ROOT.parent / "docs")
    # What became of the mutants of the solution shows the solution's lines.
    of_the_lab = (lab.folder / name for name in ("checks.py", "wrong_fixes", "mutants.json", "equivalent_mutants.toml"))
    hidden = (SOLUTIONS_ROOT, lab.solution.parent, *of_the_lab, *elsewhere)
    return Job(files, shown_as, str(lab.folder / "probe.py"), tuple(dict.fromkeys(map(str, hidden))), limits)


def patience(wish: str | None) -> float:
    """By how much the time limits stretch; `wish` is the value of LAB_PATIENCE, and nothing shortens them."""
    try:
        wished = float(wish or 1)
    except ValueError:
        return 1.0
    return min(100.0, wished) if wished >= 1.0 else 1.0


@contextlib.contextmanager
def _handle(lab: Lab, job: Job, seed: int, server: Launcher | None) -> Iterator[Submission]:
    probes = probes_in(lab.folder / "probe.py")
    handle = Submission(lambda: Session(job, server or ColdLauncher()), seed, probes)
    try:
        yield handle
    finally:
        handle.close()
