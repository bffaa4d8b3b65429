"""Each fault is found with the right code, at the right place, and nothing else is found beside it."""

from __future__ import annotations

from typing import Any

import pytest

from debugkit.rule import find_rule
from faults.fault import Fault, all_faults, examine
from healthy.program import all_programs

FAULTS = sorted(all_faults().values(), key=lambda fault: (fault.code, fault.name))
FIRST_OF_EACH_FAMILY = {fault.code[:3]: fault for fault in reversed(FAULTS)}.values()
EXTENDED_DEPENDS_ON = ("debugkit", "tests/faults", "tests/healthy")


def _parameter(fault: Fault) -> Any:
    marks = () if fault in FIRST_OF_EACH_FAMILY else pytest.mark.extended
    return pytest.param(fault, id=f"{fault.code}-{fault.name}", marks=marks)


@pytest.mark.parametrize("fault", [_parameter(fault) for fault in FAULTS])
def test_fault_is_found_with_its_code_at_its_place(fault: Fault) -> None:
    verdict = examine(fault)
    assert verdict.detected, str(verdict)


def test_there_are_enough_faults_and_each_is_planted_in_a_correct_program() -> None:
    assert len(FAULTS) >= 60
    for fault in FAULTS:
        assert fault.of in all_programs()
        assert find_rule(fault.code).code == fault.code
