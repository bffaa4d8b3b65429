"""Grades a class in several processes, each with a warm fork server. One bad submission stops no other."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import multiprocessing.util
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from datetime import UTC, datetime

from labs.classroom.key import seed_for
from labs.classroom.results import Result, Verdict
from labs.classroom.submissions import Submitted
from labs.grading import ForkServer, grade
from labs.grading.catalog import find
from labs.grading.grades import Grade

GRADES_PER_PROCESS = 40
"""A process is replaced after this many grades, so that its memory stays flat."""
_AT_ONCE = 4
"""How many grades wait for each process."""

_server: ForkServer | None = None


@dataclass(frozen=True)
class Work:
    """One submission to grade."""

    submitted: Submitted
    seed: int
    content: str


def work_for(submitted: Submitted, key: bytes, content: str) -> Work:
    """The work for a submission: its learner's own seed, and what decides its verdict."""
    return Work(submitted, seed_for(key, submitted.student, submitted.lab.id), content)


def grade_all(work: Sequence[Work], jobs: int) -> Iterator[Result]:
    """Grade each submission, and yield each result as it ends.

    If a grading process dies, what it had not finished is graded again, one at a time; what makes a process die again
    gets the verdict `error`.
    """
    left = list(work)
    ready = [one for one in left if not _is_gradable(one)]
    for one in ready:
        left.remove(one)
        yield _not_graded(one)
    for one, result in _in_a_pool(left, jobs):
        left.remove(one)
        yield result
    for one in left:
        again = list(_in_a_pool([one], 1))
        yield again[0][1] if again else _result(one, "error", "The process that graded it ended. Grade it again.")


def _in_a_pool(work: Sequence[Work], jobs: int) -> Iterator[tuple[Work, Result]]:
    """What is graded until the end, or until a process of the pool dies."""
    if not work:
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        min(jobs, len(work)), context, initializer=_begin, max_tasks_per_child=GRADES_PER_PROCESS
    ) as pool:
        waiting = iter(work)
        running: dict[Future[Result], Work] = {}
        try:
            while True:
                while len(running) < _AT_ONCE * jobs and (one := next(waiting, None)) is not None:
                    running[pool.submit(_grade, one)] = one
                if not running:
                    return
                done = next(as_completed(running))
                yield running.pop(done), done.result()
        except BrokenProcessPool:
            return
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _begin() -> None:
    """In each grading process: start its fork server, which ends with the process."""
    global _server
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    _server = ForkServer().__enter__()
    multiprocessing.util.Finalize(None, _server.__exit__, args=(None, None, None), exitpriority=10)


def _end_with_the_parent() -> None:
    """A parent that is killed tells its processes nothing: they would wait for work forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _grade(one: Work) -> Result:
    lab = find(one.submitted.lab.id)
    return _of_grade(one, grade(lab, one.submitted.files, seed=one.seed, server=_server))


def _of_grade(one: Work, done: Grade) -> Result:
    failed = tuple(check.title for check in done.failed_checks)
    reason = "" if done.passed else done.reason or ""
    return _result(one, done.verdict, reason, done.recognised_wrong_fix, failed, round(done.seconds, 1))


def _is_gradable(one: Work) -> bool:
    return bool(one.submitted.files)


def _not_graded(one: Work) -> Result:
    if one.submitted.problem:
        return _result(one, "failed", one.submitted.problem)
    return _result(one, "missing", one.submitted.absence)


def _result(
    one: Work,
    verdict: Verdict,
    reason: str,
    wrong_fix: str | None = None,
    failed: tuple[str, ...] = (),
    seconds: float = 0.0,
) -> Result:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    submitted = one.submitted
    return Result(
        student=submitted.student,
        lab=submitted.lab.id,
        verdict=verdict,
        reason=reason,
        wrong_fix=wrong_fix,
        failed_checks=failed,
        seconds=seconds,
        seed=one.seed,
        submission=submitted.digest,
        content=one.content,
        graded_at=now,
    )
