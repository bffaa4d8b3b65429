"""Runs the tasks of a verification, in this process or in several, with one fork server in each.

A fork server takes ten seconds of CPU time until it is ready, so a process keeps its own for all its labs, and starts
it only for the first that is graded.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any

from labs.authoring.plan import Task
from labs.authoring.verify import verify
from labs.grading import ForkServer
from labs.grading.sandbox.launch import Pipes

Say = Callable[[str], None]
Result = dict[str, Any]


def run_tasks(
    tasks: Sequence[Task], *, full: bool, jobs: int, chance_seeds: int = 0, say: Say = lambda _: None
) -> Iterator[Result]:
    """Yield each lab's part of the JSON document, as it is ready. `say` receives what is being done, with one job.

    With several jobs, none is left running when this ends, on an exception and KeyboardInterrupt included. Raises what
    `verify` raises.
    """
    if jobs == 1 or len(tasks) == 1:
        with OnDemandServer() as server:
            for task in tasks:
                yield _run(task, server, full, chance_seeds, lambda step, task=task: say(f"lab {task.lab.id} · {step}"))
        return
    context = multiprocessing.get_context("spawn")  # a fork would copy torch's threads, which then are not there
    with ProcessPoolExecutor(min(jobs, len(tasks)), context, initializer=_leave_interrupts_to_the_parent) as pool:
        futures: dict[Future[Result], Task] = {
            pool.submit(_run_in_worker, task, full, chance_seeds): task for task in tasks
        }
        try:
            for future in as_completed(futures):
                yield _result(future, futures[future])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            _end(multiprocessing.active_children())
            raise


class OnDemandServer:
    """A fork server that is started for the first child that is launched."""

    def __init__(self) -> None:
        self._server: ForkServer | None = None

    def launch(self, job: dict[str, Any]) -> Pipes:
        """Have a child forked. Raises SandboxError."""
        if self._server is None:
            self._server = ForkServer()
        return self._server.launch(job)

    def __enter__(self) -> OnDemandServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()


def _run(task: Task, server: OnDemandServer, full: bool, chance_seeds: int, say: Say = lambda _: None) -> Result:
    result = verify(task.lab, server, scope=task.scope, full=full, chance_seeds=chance_seeds, say=say)
    return {**result.to_json(), "scope": task.scope, "why": task.why}


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _end(processes: Sequence[BaseProcess]) -> None:
    for process in processes:
        process.terminate()  # its fork server ends with it, and so does what that server forked
    for process in processes:
        process.join()


_worker_server = OnDemandServer()
"""A worker's own; it ends when the worker does."""


def _run_in_worker(task: Task, full: bool, chance_seeds: int) -> Result:
    return _run(task, _worker_server, full, chance_seeds)


def _result(future: Future[Result], task: Task) -> Result:
    try:
        return future.result()
    except BrokenProcessPool:
        violation = {
            "rule": "verifies",
            "sentence": "the process that verified it died, most likely from lack of memory",
        }
        document = {"id": task.lab.id, "slug": task.lab.slug, "ok": False, "grades": 0, "violations": [violation]}
        return {**document, "scope": task.scope, "why": task.why}
