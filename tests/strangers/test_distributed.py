"""What `debugkit run` says of programs on two ranks is as recorded: silence on the correct ones above all."""

from __future__ import annotations

from pathlib import Path

import pytest

from strangers.corpus import RANKS, Fault, Stranger
from strangers.distributed import programs, results, verdict_on_two_ranks

EXTENDED_DEPENDS_ON = ("debugkit", "tests/strangers")
PROGRAMS = programs()
FAULTS = [(stranger, fault) for stranger in PROGRAMS.values() for fault in stranger.faults]
OF_RANKS = [
    (stranger, fault)
    for stranger, fault in FAULTS
    if results()[stranger.name][fault.name][1] != "missed" and any(code.startswith("DK8") for code in fault.codes)
]
"""The faults that only several processes can have. The others are found as on one rank, which other tests show."""


@pytest.mark.extended
@pytest.mark.parametrize("stranger", PROGRAMS.values(), ids=lambda stranger: stranger.name)
def test_correct_program_is_left_alone(stranger: Stranger, tmp_path: Path) -> None:
    now, said = verdict_on_two_ranks(stranger, None, tmp_path)
    assert now == "silent", said


@pytest.mark.extended
@pytest.mark.parametrize(("stranger", "fault"), OF_RANKS, ids=[f"{s.name}-{f.name}" for s, f in OF_RANKS])
def test_fault_is_found_at_least_as_recorded(stranger: Stranger, fault: Fault, tmp_path: Path) -> None:
    now, said = verdict_on_two_ranks(stranger, fault, tmp_path)
    assert RANKS.index(now) >= RANKS.index(results()[stranger.name][fault.name][1]), said


def test_every_program_and_every_fault_has_a_result() -> None:
    recorded = {name: set(verdicts) for name, verdicts in results().items()}
    assert recorded == {s.name: {"correct", *(fault.name for fault in s.faults)} for s in PROGRAMS.values()}


def test_every_fault_edits_its_program() -> None:
    for stranger, fault in FAULTS:
        source, edited = stranger.source(fault.name)
        assert edited, f"{stranger.name} has no line for {fault.name}"
        assert source != stranger.source(None)[0]
        compile(source, stranger.name, "exec")
