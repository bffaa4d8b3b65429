"""Correct programs get no error and no warning, before training and while it runs."""

from __future__ import annotations

from typing import Any

import pytest

from debugkit.finding import Severity
from debugkit.report import Report
from healthy.program import LONG, Program, all_programs, built
from sampling import first_of_each, parameters

NAMES = sorted(all_programs())
EXTENDED_DEPENDS_ON = ("debugkit", "tests/healthy")


def _sampled(names: list[str]) -> list[Any]:
    """The first one of each topic runs in the ordinary suite."""
    return parameters(names, first_of_each(names, lambda name: all_programs()[name].__module__), name=str)


@pytest.fixture(scope="module", params=_sampled(NAMES))
def program(request: pytest.FixtureRequest) -> Program:
    return built(request.param)


def test_check_is_silent_on_a_correct_program(program: Program) -> None:
    assert_silent(program.check())


def test_watch_is_silent_on_a_correct_program(program: Program) -> None:
    report = program.watch()
    assert_silent(report)
    assert report.examined, "nothing was watched: silence proves nothing"


@pytest.mark.parametrize("name", _sampled(NAMES))
def test_run_is_silent_on_a_correct_program(name: str) -> None:
    assert_silent(built(name).run())


@pytest.mark.parametrize("name", _sampled([name for name in NAMES if built(name).steps == LONG]))
def test_watch_is_silent_for_forty_steps(name: str) -> None:
    program = built(name)
    program.steps = 40
    assert_silent(program.watch())


def test_there_are_enough_correct_programs() -> None:
    assert len(all_programs()) >= 30


def assert_silent(report: Report) -> None:
    for entry in report.not_examined:
        if entry.error is not None:
            raise entry.error
    alarms = [finding for finding in report.findings if finding.severity is not Severity.INFO]
    assert not alarms, [f"{finding.code} at {finding.location}: {finding.message}" for finding in alarms]
    assert report.failure is None
