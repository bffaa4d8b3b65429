"""Each fault is found with the right code, at the right place, and nothing else is found beside it."""

from __future__ import annotations

import pytest

from debugkit.rule import find_rule
from faults.fault import Fault, all_faults, examine
from healthy.program import all_programs
from sampling import first_of_each, parameters

FAULTS = sorted(all_faults().values(), key=lambda fault: (fault.code, fault.name))
EXTENDED_DEPENDS_ON = ("debugkit", "tests/faults", "tests/healthy")


@pytest.mark.parametrize(
    "fault",
    parameters(
        FAULTS,
        first_of_each(FAULTS, lambda fault: fault.code[:3]),
        name=lambda fault: f"{fault.code}-{fault.name}",
    ),
)
def test_fault_is_found_with_its_code_at_its_place(fault: Fault) -> None:
    verdict = examine(fault)
    assert verdict.detected, str(verdict)


def test_there_are_enough_faults_and_each_is_planted_in_a_correct_program() -> None:
    assert len(FAULTS) >= 60
    for fault in FAULTS:
        assert fault.of in all_programs()
        assert find_rule(fault.code).code == fault.code
