"""The pytest plugin that runs a lab's checks: the fixtures, the order, and the outcome of each check.

pytest collects the checks, provides the fixtures and runs the functions. Its own reporting is off, and its `longrepr`,
which shows the check's source, is not used.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Collection, Generator
from typing import Any

import pytest

from labs.grading.declarations import KINDS, Check, Declared, Kind, declared_in
from labs.grading.errors import CheckError, SandboxError, SubmissionFailure, SubmissionRaisedError
from labs.grading.expectations import CheckRecord, ExpectationError, current_record
from labs.grading.grades import CheckResult, Outcome
from labs.grading.rng import Rng, derive
from labs.grading.submission import Submission
from labs.grading.submission_text import shorten


class ChecksPlugin:
    """Runs the declared checks of one lab against one submission."""

    def __init__(
        self,
        submission: Submission,
        *,
        grade_seed: int,
        outcome_seeds: tuple[int, ...],
        all_checks: bool,
        on_check: Callable[[CheckResult], None] | None,
        kinds: Collection[Kind] = KINDS,
    ) -> None:
        self.declared = Declared((), ())
        """What checks.py declares; filled in when it is collected."""
        self._submission = submission
        self._grade_seed = grade_seed
        self._outcome_seeds = outcome_seeds
        self._all_checks = all_checks
        self._on_check = on_check
        self._kinds = kinds
        self._failures: dict[str, tuple[Outcome, str]] = {}
        self._raised: set[str] = set()
        self._records: dict[str, CheckRecord] = {}
        self.results: dict[str, CheckResult] = {}
        self.fault: str | None = None
        """The first fault of the grader itself; None if there was none."""
        self.interrupted = False

    @pytest.fixture(name="submission")
    def submission_fixture(self) -> Submission:
        return self._submission

    @pytest.fixture(name="rng")
    def rng_fixture(self, request: pytest.FixtureRequest) -> Rng:
        return Rng("rng", *self._key(check_of(request.node)))

    @pytest.fixture(name="seed")
    def seed_fixture(self, request: pytest.FixtureRequest) -> int:
        """One of the lab's seeds in an outcome check; a fresh one in any other."""
        check = check_of(request.node)
        return self.outcome_seed(check) if check.kind == "outcome" else Rng("seed", *self._key(check)).seed()

    def outcome_seed(self, check: Check) -> int:
        """The seed drawn for an outcome check from those the lab was verified on."""
        return Rng("outcome", self._grade_seed, check.id).choice(self._outcome_seeds)

    @property
    def expected(self) -> list[Check]:
        """The checks that must have run at the end: the declared ones of the requested kinds."""
        return [check for check in self.declared.checks if check.kind in self._kinds]

    def _key(self, check: Check) -> tuple[int | str, ...]:
        # An outcome's threshold was measured on the lab's seeds, so nothing else may change the result.
        return (self.outcome_seed(check) if check.kind == "outcome" else self._grade_seed, check.id)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            refuse_marks(item)
            self.declared = declared_in(check_of(item).module)
        items[:] = [item for item in items if check_of(item).kind in self._kinds]
        items.sort(key=lambda item: KINDS.index(check_of(item).kind))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:
            self._blame_grader(f"checks.py could not be collected: {_last_line(report.longrepr)}")

    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        check = check_of(item)
        why = self._why_not(check)
        if why is None:
            return None
        self._finish(check, "not_run", why)
        return True

    def _why_not(self, check: Check) -> str | None:
        if self._submission.ending is not None:
            return "Not run: your code can no longer be called."
        structural_failed = any(one.kind != "outcome" and one.outcome != "passed" for one in self.results.values())
        if check.kind == "outcome" and structural_failed and not self._all_checks:
            return "Not run: it runs when the checks above pass, or with `--all-checks`."
        return None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        check = check_of(item)
        record = self._records[check.id] = CheckRecord()
        self._submission.begin(check.id, derive("request", *self._key(check)))
        token = current_record.set(record)
        try:
            # stdout is for the JSON document, whatever a check or a library prints.
            with contextlib.redirect_stdout(io.StringIO()):
                return (yield)
        finally:
            current_record.reset(token)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        check = check_of(item)
        if call.excinfo is not None:
            self._failures.setdefault(check.id, self._judge(check, call.when, call.excinfo.value))
        if call.when == "teardown":
            self._forbid_empty_pass(check)
            outcome, message = self._failures.get(check.id, ("passed", ""))
            self._finish(check, outcome, message)
        return report

    def _forbid_empty_pass(self, check: Check) -> None:
        """A check that hid the child's end, or that requested nothing from the submission, has not passed."""
        if check.id in self._failures:
            return
        if self._submission.ending is not None:
            self._failures[check.id] = ("failed", self._submission.ending)
        elif not self._submission.measured:
            self._failures[check.id] = ("error", f"{check.id} passed without calling the submission.")
            self._blame_grader(self._failures[check.id][1])

    def _judge(self, check: Check, when: str, error: BaseException) -> tuple[Outcome, str]:
        if isinstance(error, SubmissionRaisedError):
            self._raised.add(check.id)
        if isinstance(error, (SubmissionFailure, ExpectationError)):
            return "failed", str(error)
        if isinstance(error, AssertionError):
            return "failed", str(error).partition("\n")[0] or check.property
        if when == "call" and self._submission.measured and not isinstance(error, _NEVER_THE_SUBMISSION):
            # The check failed on the returned value: a wrong type, a missing key, an index out of range.
            return "failed", f"What your code returned cannot be used ({_in_short(error)})."
        # A SandboxError is a sentence for the user already.
        message = (
            str(error) if isinstance(error, SandboxError) else f"{check.id} failed in the grader: {_in_short(error)}"
        )
        self._blame_grader(message)
        return "error", message

    def _finish(self, check: Check, outcome: Outcome, message: str) -> None:
        record = self._records.get(check.id, CheckRecord())
        result = CheckResult(
            id=check.id,
            title=check.title,
            kind=check.kind,
            outcome=outcome,
            message=message,
            measured=record.measured,
            expected=record.expected,
            property=check.property,
            instrument=check.instrument,
            raised=check.id in self._raised,
        )
        evidence = self._submission.evidence
        # Recognisers are pure functions of what was measured, so they get it as it came; the result cleans it.
        evidence[check.id] = {"outcome": outcome, "measured": record.measured, "expected": record.expected}
        evidence.update({f"{check.id}/{name}": value for name, value in record.named.items()})
        self.results[check.id] = result
        if self._on_check is not None:
            self._on_check(result)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        # pytest uses subclasses of it to stop, after a collection error or with Exit.
        if excinfo.type is KeyboardInterrupt:
            self.interrupted = True
        else:
            self._blame_grader(f"pytest stopped: {shorten(str(excinfo.value), 300)}")

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
        self._blame_grader(f"pytest failed: {_in_short(excinfo.value)}")
        return True

    def _blame_grader(self, message: str) -> None:
        self.fault = self.fault or message


_NEVER_THE_SUBMISSION = (OSError, MemoryError, CheckError, SandboxError, pytest.skip.Exception, pytest.xfail.Exception)


def check_of(item: Any) -> Check:
    """The check that a pytest item is. Raises CheckError for a test without `@check`."""
    found = getattr(item.function, "__lab_check__", None)
    if not isinstance(found, Check):
        raise CheckError(f"{item.name} in checks.py has no @check decorator.")
    return found


def refuse_marks(item: Any) -> None:
    """Raise CheckError for skip, xfail and parametrize: a check runs exactly once, and its result counts."""
    for name in ("skip", "skipif", "xfail", "parametrize"):
        if item.get_closest_marker(name) is not None:
            raise CheckError(f"{item.name} is marked {name}: a check always runs, once; loop inside it instead.")


def _last_line(longrepr: object) -> str:
    lines = [line for line in str(longrepr).splitlines() if line.strip()]
    return shorten(lines[-1], 300) if lines else "no reason given"


def _in_short(error: BaseException) -> str:
    return f"{type(error).__name__}: {shorten(str(error), 300)}"
