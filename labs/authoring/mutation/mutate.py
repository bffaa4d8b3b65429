"""`lab dev mutate`: grades every mutant of a lab's solution and says which of them no check refuses."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context

from labs.authoring import cpu_time
from labs.authoring.bench import Bench, Refusal, Verdict
from labs.authoring.mutation.catalogue import named
from labs.authoring.mutation.hunks import OPERATOR as ONE_HUNK
from labs.authoring.mutation.journal import Journal
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
_STRUCTURAL = "structural"


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
    `labs.grading.grade` with the second seed, with `outcomes` by the outcome checks too. A run that was cut off
    is continued. `most` limits the number of mutants, for tests.

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
    journal = Journal(lab, names=names)
    with OnDemandServer() as server:
        verdicts = _at_once(_Work(lab, solution, names), mutants, jobs, server, journal, say)
        survivors = [one for one in mutants if verdicts[one.id].refusal is None and one.id not in reasons]
        again = _once_more(lab, survivors, outcomes, server, journal, say)
    found = verdicts | again  # the later verdict of a survivor decides
    refusals = {name: one.refusal for name, one in found.items() if one.refusal is not None}
    cpu = sum(one.cpu_s for one in (*verdicts.values(), *again.values()))
    kinds: dict[str, Kind] = {check.id: check.kind for check in declared_by(lab).checks}
    records = tuple(
        _record(one, refusals.get(one.id), reasons.get(one.id), kinds, verdicts[one.id].named) for one in mutants
    )
    record = make_record(lab, records, seed=lab.seeds[0], outcomes=outcomes, cpu_s=cpu)
    if len(mutants) == len(everything):
        journal.remove()
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


def _at_once(
    work: _Work, mutants: list[Mutant], jobs: int, server: OnDemandServer, journal: Journal, say: Say
) -> dict[str, Verdict]:
    """The verdict of the structural checks on each mutant, by its name: of this run, or of one that was cut off."""
    known = journal.verdicts(_STRUCTURAL)
    submissions = [(one.id, one.files) for one in mutants if one.id not in known]
    # Every nth mutant: neighbours cost about the same, so the slices end at about the same time.
    slices = [one for one in (submissions[first::jobs] for first in range(jobs)) if one]
    if len(slices) == 1:
        known |= _slice(work, submissions, server, journal, say)
    elif slices:
        known |= _elsewhere(work, slices, {one.id for one in mutants}, journal, say)
    return {one.id: known[one.id] for one in mutants}


def _elsewhere(
    work: _Work, slices: list[list[tuple[str, Files]]], names: set[str], journal: Journal, say: Say
) -> dict[str, Verdict]:
    others = (work.solution, work.names)
    with ProcessPoolExecutor(len(slices), mp_context=get_context("spawn")) as pool:
        running: set[Future[dict[str, Verdict]]] = {
            pool.submit(_slice_elsewhere, work.lab.id, others, one) for one in slices
        }
        left = running
        while left:
            left = wait(left, timeout=1).not_done
            say(f"{len(journal.verdicts(_STRUCTURAL).keys() & names)} of {len(names)}")
    return {name: verdict for part in running for name, verdict in part.result().items()}


def _slice_elsewhere(
    number: str, others: tuple[Files, bool], submissions: list[tuple[str, Files]]
) -> dict[str, Verdict]:
    """A part of the mutants, in a process of its own."""
    lab = find(number)
    with OnDemandServer() as server:
        return _slice(_Work(lab, *others), submissions, server, Journal(lab, names=others[1]), lambda _: None)


def _slice(
    work: _Work, submissions: list[tuple[str, Files]], server: OnDemandServer, journal: Journal, say: Say
) -> dict[str, Verdict]:
    bench = Bench(work.lab, server, names=work.names)
    return bench.verdicts(
        work.solution, submissions, work.lab.seeds[0], say, lambda name, found: journal.add(_STRUCTURAL, name, found)
    )


def _once_more(
    lab: Lab, survivors: list[Mutant], outcomes: bool, server: OnDemandServer, journal: Journal, say: Say
) -> dict[str, Verdict]:
    """The grader's own grade of each with another seed, by its name; a hole is a mutant that this passes too."""
    step = "outcomes" if outcomes else "second seed"
    known, found = journal.verdicts(step), dict[str, Verdict]()
    for mutant in survivors:
        if mutant.id not in known:
            say(f"{mutant.id} once more")
            known[mutant.id] = _graded(lab, mutant, outcomes, server)
            journal.add(step, mutant.id, known[mutant.id])
        found[mutant.id] = known[mutant.id]
    return found


def _graded(lab: Lab, mutant: Mutant, outcomes: bool, server: OnDemandServer) -> Verdict:
    started, cpu = time.process_time(), [0.0]
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
    return Verdict(_first_refusal(graded), max(cpu), time.process_time() - started)


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
