"""`lab dev mutate`: grades every mutant of a lab's solution and says which of them no check refuses."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from labs.authoring import cpu_time
from labs.authoring.bench import Bench, Refusal
from labs.authoring.mutation.catalogue import named
from labs.authoring.mutation.hunks import OPERATOR as ONE_HUNK
from labs.authoring.mutation.mutants import Files, Mutant, mutants_of, read
from labs.authoring.mutation.reasons import read_reasons
from labs.authoring.mutation.record import MutantRecord, Outcome, Record, make_record, read_record
from labs.authoring.verify_many import OnDemandServer
from labs.grading import grade
from labs.grading.catalog import Lab, find
from labs.grading.declarations import KINDS, STRUCTURAL, Kind
from labs.grading.extras import require_extras
from labs.grading.grades import Grade
from labs.grading.runner import declared_by

Say = Callable[[str], None]


@dataclass(frozen=True)
class Mutation:
    """The result of one run, and the mutants it is made of, for their diffs."""

    lab: Lab
    record: Record
    mutants: dict[str, Mutant]
    solution: Files
    untrue: tuple[str, ...] = ()
    """The mutants that a check refuses although a reason says that they are equivalent."""

    @property
    def holes(self) -> list[MutantRecord]:
        """The mutants that no check refuses and no reason explains."""
        return [one for one in self.record.mutants if one.outcome == "hole"]


def mutate(
    lab: Lab,
    *,
    jobs: int = 1,
    only: str | None = None,
    holes: bool = False,
    most: int | None = None,
    outcomes: bool = False,
    names: bool = False,
    say: Say = lambda _: None,
) -> Mutation:
    """Grade the lab's mutants, `only` those of one operator, with the structural checks and the lab's first seed.

    `holes` leaves only those that `mutants.json` lists as holes. With `names`, every check runs on every mutant, so
    that the record says which of them get the name of a wrong fix. What passes and has no reason is graded again by
    `labs.grading.grade` with the second seed, with `outcomes` by the outcome checks too.
    `most` limits the number of mutants, for tests.

    Raises BenchError, ReasonsError, UnknownOperatorError, MissingExtraError, OSError.
    """
    require_extras(lab)
    if only is not None and only != ONE_HUNK:
        named(only)
    everything = mutants_of(lab)
    reasons = read_reasons(lab, {one.id for one in everything})
    known = _holes_of(lab) if holes else None
    mutants = [one for one in everything if only in (None, one.operator) and (known is None or one.id in known)][:most]
    solution = read(lab, lab.solution)
    with OnDemandServer() as server:
        found = _at_once(_Work(lab, solution, names), mutants, jobs, server, say)
        refusals = dict(found.refusals)
        started, of_children = time.process_time(), 0.0
        for mutant in mutants:
            if mutant.id in refusals or mutant.id in reasons:
                continue
            say(f"{mutant.id} once more")
            refusal, cpu = _once_more(lab, mutant, outcomes, server)
            of_children += cpu
            if refusal is not None:
                refusals[mutant.id] = refusal
    cpu = found.cpu_s + of_children + time.process_time() - started
    kinds: dict[str, Kind] = {check.id: check.kind for check in declared_by(lab).checks}
    records = tuple(
        _record(one, refusals.get(one.id), reasons.get(one.id), kinds, found.names.get(one.id)) for one in mutants
    )
    record = make_record(lab, records, seed=lab.seeds[0], outcomes=outcomes, cpu_s=cpu)
    return Mutation(
        lab, record, {one.id: one for one in mutants}, solution, tuple(one for one in reasons if one in refusals)
    )


def _holes_of(lab: Lab) -> set[str]:
    record = read_record(lab)
    return set() if record is None else {one.id for one in record.mutants if one.outcome == "hole"}


@dataclass(frozen=True)
class _Work:
    """What every process needs to grade its part of the mutants."""

    lab: Lab
    solution: Files
    names: bool


@dataclass(frozen=True)
class _Found:
    """What the structural checks refuse, the wrong fixes' names given, and the CPU seconds that this took."""

    refusals: dict[str, Refusal]
    names: dict[str, str]
    cpu_s: float


def _at_once(work: _Work, mutants: list[Mutant], jobs: int, server: OnDemandServer, say: Say) -> _Found:
    submissions = [(one.id, one.files) for one in mutants]
    # Every nth mutant: neighbours cost about the same, so the slices end at about the same time.
    slices = [one for one in (submissions[first::jobs] for first in range(jobs)) if one]
    if len(slices) <= 1:
        return _slice(work, submissions, server, say)
    number, others = work.lab.id, (work.solution, work.names)
    with ProcessPoolExecutor(len(slices), mp_context=get_context("spawn")) as pool:
        parts = list(pool.map(_slice_elsewhere, [number] * len(slices), [others] * len(slices), slices))
    refusals = {name: refusal for part in parts for name, refusal in part.refusals.items()}
    names = {mutant: name for part in parts for mutant, name in part.names.items()}
    return _Found(refusals, names, sum(part.cpu_s for part in parts))


def _slice_elsewhere(number: str, others: tuple[Files, bool], submissions: list[tuple[str, Files]]) -> _Found:
    """A part of the mutants, in a process of its own."""
    with OnDemandServer() as server:
        return _slice(_Work(find(number), *others), submissions, server, lambda _: None)


def _slice(work: _Work, submissions: list[tuple[str, Files]], server: OnDemandServer, say: Say) -> _Found:
    started = time.process_time()
    bench = Bench(work.lab, server, names=work.names)
    verdicts = bench.verdicts(work.solution, submissions, work.lab.seeds[0], say)
    refusals = {name: one.refusal for name, one in verdicts.items() if one.refusal is not None}
    names = {name: one.named for name, one in verdicts.items() if one.named is not None}
    return _Found(refusals, names, time.process_time() - started + sum(one.child_cpu_s for one in verdicts.values()))


def _once_more(lab: Lab, mutant: Mutant, outcomes: bool, server: Any) -> tuple[Refusal | None, float]:
    """The grader's own grade with another seed, and its CPU seconds; a survivor is one that this passes too."""
    cpu = [0.0]
    seed = lab.seeds[1]
    graded = grade(
        lab,
        dict(mutant.files),
        seed=seed,
        outcome_seed=seed,
        kinds=KINDS if outcomes else STRUCTURAL,
        answers=False,
        on_check=lambda _: cpu.append(cpu_time.of_children()),
        server=server,
    )
    return _first_refusal(graded), max(cpu)


def _first_refusal(graded: Grade) -> Refusal | None:
    for one in graded.checks:
        if one.outcome != "passed":
            return Refusal(one.id, one.message, by_grader=one.outcome == "error")
    return None if graded.passed else Refusal("", graded.reason or "", by_grader=True)


def _record(
    mutant: Mutant, refusal: Refusal | None, reason: str | None, kinds: dict[str, Kind], name: str | None
) -> MutantRecord:
    outcome: Outcome = "hole" if reason is None else "equivalent"
    check, grader_error = None, None
    if refusal is not None:
        reason = None
        check, grader_error = (None, refusal.message) if refusal.by_grader else (refusal.check, None)
        outcome = "hole" if refusal.by_grader else "refused"
    return MutantRecord(
        id=mutant.id,
        operator=mutant.operator,
        file=mutant.file,
        line=mutant.line,
        summary=mutant.summary,
        outcome=outcome,
        check=check,
        by=kinds[check] if check is not None else None,
        named=name,
        reason=reason,
        grader_error=grader_error,
    )
