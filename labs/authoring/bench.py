"""Runs a lab's structural checks against many submissions, or with many seeds, in one pytest session.

`labs.grading.grade` starts pytest for each submission, which costs more than most checks. Here the checks are collected
once and run again for each submission, each in a child of its own and up to its first refusal; what counts as a refusal
is decided by the grader's own plugin.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from labs.authoring import cpu_time
from labs.grading.catalog import Lab
from labs.grading.declarations import STRUCTURAL, Check
from labs.grading.errors import GradingError
from labs.grading.grader import job_of
from labs.grading.plugin import ChecksPlugin, check_of
from labs.grading.runner import run_checks
from labs.grading.sandbox.session import Session
from labs.grading.submission import Submission, probes_in

Files = dict[str, str]


@dataclass(frozen=True)
class Refusal:
    """The first check that did not pass, and its message.

    `by_grader`: the check itself went wrong, not the submission.
    """

    check: str
    message: str
    by_grader: bool = False


@dataclass(frozen=True)
class Verdict:
    """What came of one submission; `refusal` is None where every structural check passed."""

    refusal: Refusal | None
    child_cpu_s: float
    grader_cpu_s: float
    named: str | None = None
    """The wrong fix whose name it was given."""

    @property
    def cpu_s(self) -> float:
        """The CPU time of the submission's child and of the checks."""
        return self.child_cpu_s + self.grader_cpu_s


Keep = Callable[[str, Verdict], None]
"""What is called with the name of each submission and its verdict, as soon as it is there."""


class BenchError(Exception):
    """The checks could not be run, or refuse the solution; the message says why."""


class Bench:
    """Grades submissions of one lab with a running ForkServer.

    With `names`, every check runs on every submission, because a recogniser may need what any of them measured.
    """

    def __init__(self, lab: Lab, server: Any, *, names: bool = False) -> None:
        self._lab = lab
        self._server = server
        self.names = names
        self._probes = probes_in(lab.folder / "probe.py")
        self._cpu_s: int | None = None

    def verdicts(
        self,
        solution: Files,
        submissions: Iterable[tuple[str, Files]],
        seed: int,
        say: Callable[[str], None],
        keep: Keep = lambda _name, _verdict: None,
    ) -> dict[str, Verdict]:
        """A verdict with `seed` for each submission, by name. The solution comes first and last, and must pass twice.

        Its time sets the limits of the others: a submission that hangs is refused by the check that waits for it.
        `keep` is called with each verdict as soon as it is there. Raises BenchError.
        """
        everything = [(_FIRST, solution), *submissions, (_LAST, solution)]
        verdicts = self._run([(name, files, seed) for name, files in everything], say, keep)
        for name in (_FIRST, _LAST):
            if name not in verdicts:
                raise BenchError("The checks ended before every submission was graded.")
            refusal = verdicts.pop(name).refusal
            if refusal is not None:
                raise BenchError(f"{refusal.check or 'The grader'} refuses the {name}: {refusal.message}")
        return verdicts

    def over_seeds(
        self,
        files: Files,
        seeds: Iterable[int],
        say: Callable[[str], None],
        *,
        checks: Collection[str] | None = None,
    ) -> dict[int, Refusal]:
        """The refusals of one submission, by the seed with which it was refused. Raises BenchError.

        `checks` are the ids of the structural checks that run; None for all.
        """
        submissions = [(str(seed), files, seed) for seed in seeds]
        verdicts = self._run(submissions, say, lambda _seed, _verdict: None, checks)
        return {int(seed): one.refusal for seed, one in verdicts.items() if one.refusal is not None}

    def _run(
        self,
        submissions: list[tuple[str, Files, int]],
        say: Callable[[str], None],
        keep: Keep,
        checks: Collection[str] | None = None,
    ) -> dict[str, Verdict]:
        plugin = _ManySubmissions(self, submissions, say, keep, checks)
        run_checks(self._lab, plugin)
        if not plugin.verdicts:
            raise BenchError(plugin.fault or "checks.py declares no structural check.")
        return plugin.verdicts

    def limit_by(self, verdict: Verdict) -> None:
        """Allow the submissions to come a few times the CPU time that this one took.

        The wall clock stays the lab's: how busy the machine is must refuse nothing.
        """
        self._cpu_s = math.ceil(_TIMES * verdict.child_cpu_s + _AT_LEAST_S)

    def open(self, files: Files, seed: int) -> Submission:
        """A handle to a child that has loaded these files."""
        job = job_of(self._lab, files, files)
        if self._cpu_s is not None:
            job = replace(job, limits=replace(job.limits, cpu_s=min(job.limits.cpu_s, self._cpu_s)))
        return Submission(lambda: Session(job, self._server), seed, self._probes)


_FIRST, _LAST = "solution", "solution at the end of the run"
_TIMES, _AT_LEAST_S = 4.0, 3.0
_CHEAP_S = 0.25
"""CPU time up to which checks keep their order. Expensive ones follow, by powers of two: few mutants reach them."""


def _class_of_cost(cpu_s: float) -> int:
    return math.ceil(math.log2(max(cpu_s, _CHEAP_S) / _CHEAP_S))


class _ManySubmissions(ChecksPlugin):
    """The grader's plugin, begun afresh for each submission."""

    def __init__(
        self,
        bench: Bench,
        submissions: list[tuple[str, Files, int]],
        say: Callable[[str], None],
        keep: Keep,
        checks: Collection[str] | None,
    ) -> None:
        self._bench = bench
        self._submissions = submissions
        self._say = say
        self._keep = keep
        self._checks = checks
        self._costs: dict[str, float] = {}
        self.verdicts: dict[str, Verdict] = {}
        self._begin({}, 0)

    @property
    def expected(self) -> list[Check]:
        """The checks that run: those asked for."""
        return [one for one in super().expected if self._checks is None or one.id in self._checks]

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        super().pytest_collection_modifyitems(items)
        items[:] = [item for item in items if check_of(item) in self.expected]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if self.fault is not None or not session.items:
            return True  # checks.py itself is at fault
        for number, (name, files, seed) in enumerate(self._submissions, start=1):
            self._say(f"{number} of {len(self._submissions)}")
            self._begin(files, seed)
            self.verdicts[name] = verdict = self._run(session, each_check=name == _FIRST)
            if name == _FIRST:
                if verdict.refusal is not None:
                    break
                self._bench.limit_by(verdict)
                session.items.sort(key=lambda item: _class_of_cost(self._costs[check_of(item).id]))
            elif name != _LAST:
                self._keep(name, verdict)
        return True

    def _begin(self, files: Files, seed: int) -> None:
        declared = getattr(self, "declared", None)
        super().__init__(
            self._bench.open(files, seed),
            grade_seed=seed,
            outcome_seeds=(seed,),
            all_checks=False,
            on_check=None,
            kinds=STRUCTURAL,
        )
        self.declared = declared or self.declared

    def _run(self, session: pytest.Session, *, each_check: bool) -> Verdict:
        """Run the checks on one submission; with `each_check`, note the CPU time of each as well."""
        started = time.process_time()
        with contextlib.suppress(GradingError):  # the first check will meet the same failure
            self._submission.start()
        cpu = cpu_time.of_children()
        try:
            for item in session.items:
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
                if each_check:
                    now = cpu_time.of_children()
                    self._costs[check_of(item).id], cpu = now - cpu, now
                if not self._bench.names and any(one.outcome != "passed" for one in self.results.values()):
                    break
            if not each_check:
                cpu = cpu_time.of_children()
        finally:
            self._submission.close()
        found = self.declared.recognise(self._submission.evidence) if self._bench.names else None
        spent = time.process_time() - started
        return Verdict(self._refusal(), cpu, spent, None if found is None else found[0].name)

    def _refusal(self) -> Refusal | None:
        for one in self.results.values():
            if one.outcome != "passed":
                return Refusal(one.id, one.message, by_grader=one.outcome == "error")
        if self.fault is not None or len(self.results) < len(self.expected):
            return Refusal("", self.fault or "Not every check ran.", by_grader=True)
        return None
