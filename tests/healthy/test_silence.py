"""Correct programs get no error and no warning, before training and while it runs."""

from __future__ import annotations

from typing import Any

import pytest

from debugkit.finding import Severity
from debugkit.report import Report
from healthy.program import LONG, Program, all_programs, built

NAMES = sorted(all_programs())
FIRST_OF_EACH_TOPIC = {build.__module__: name for name, build in reversed(all_programs().items())}.values()
EXTENDED_DEPENDS_ON = ("debugkit", "tests/healthy")


def _parameter(name: str) -> Any:
    return pytest.param(name, marks=() if name in FIRST_OF_EACH_TOPIC else pytest.mark.extended)


@pytest.fixture(scope="module", params=[_parameter(name) for name in NAMES])
def program(request: pytest.FixtureRequest) -> Program:
    return built(request.param)


def test_check_is_silent_on_a_correct_program(program: Program) -> None:
    assert_silent(program.check())


def test_watch_is_silent_on_a_correct_program(program: Program) -> None:
    report = program.watch()
    assert_silent(report)
    assert report.examined, "nothing was watched: silence proves nothing"


@pytest.mark.parametrize("name", [_parameter(name) for name in NAMES if built(name).steps == LONG])
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
