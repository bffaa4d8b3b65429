"""Lab 81 tells processes that wait for each other from processes that a busy machine keeps waiting."""

from __future__ import annotations

import mmap
import struct
import threading
import time
from pathlib import Path

import pytest

from child_processes import HANG_S
from labs.lab81_one_waits import probe


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.setattr(probe, "PATIENCE_S", 1.0)
    monkeypatch.setattr(probe, "LONGEST_S", float(HANG_S))
    return [tmp_path / "rank0", tmp_path / "rank1"]


def test_processes_that_work_slowly_are_waited_for(notes: list[Path]) -> None:
    work = mmap.mmap(-1, 16)

    def slow_ranks() -> None:
        for step in range(1, 31):
            time.sleep(0.1)
            struct.pack_into("2d", work, 0, 0.02 * step, 0.01 * step)
        for note in notes:
            note.touch()

    ranks = threading.Thread(target=slow_ranks)
    ranks.start()
    probe._wait_for(notes, work)
    finished = [note.exists() for note in notes]
    ranks.join()
    assert finished == [True, True]


def test_processes_that_do_no_work_are_not(notes: list[Path]) -> None:
    notes[0].touch()
    began = time.monotonic()
    probe._wait_for(notes, mmap.mmap(-1, 16))
    assert 1.0 <= time.monotonic() - began < HANG_S


def test_work_without_an_end_is_given_up(notes: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "WORK", -1.0)
    monkeypatch.setattr(probe, "LONGEST_S", 0.5)
    probe._wait_for(notes, mmap.mmap(-1, 16))


def test_a_process_tells_how_much_it_has_worked() -> None:
    work = mmap.mmap(-1, 16)
    threading.Thread(target=probe._tell_work, args=(work, 1), daemon=True).start()
    deadline = time.monotonic() + HANG_S
    while struct.unpack("2d", work[:])[1] == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert struct.unpack("2d", work[:])[0] == 0
    assert 0 < struct.unpack("2d", work[:])[1] <= time.process_time()
