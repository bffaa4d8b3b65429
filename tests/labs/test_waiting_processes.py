"""Lab 81 tells processes that wait for each other from processes that a busy machine keeps waiting."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from child_processes import HANG_S
from labs.lab81_one_waits import probe
from labs.lab81_one_waits.probe import IDLE_BEATS, Counts


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.setattr(probe, "LONGEST_S", float(HANG_S))
    return [tmp_path / "rank0", tmp_path / "rank1"]


def wait_for(notes: list[Path], counts: Counts) -> None:
    probe._wait_for(notes, counts, [], set(), until_idle=True)


def test_processes_of_which_one_computes_are_waited_for(notes: list[Path]) -> None:
    counts = Counts(2)
    counts.set(0, "idle", 10 * IDLE_BEATS)

    def slow_ranks() -> None:
        for beat in range(10):
            time.sleep(0.1)
            counts.set(1, "idle", beat % IDLE_BEATS)
        for note in notes:
            note.touch()

    ranks = threading.Thread(target=slow_ranks)
    ranks.start()
    wait_for(notes, counts)
    finished = [note.exists() for note in notes]
    ranks.join()
    assert finished == [True, True]


def test_processes_that_do_not_compute_are_not(notes: list[Path]) -> None:
    counts, began = Counts(2), time.monotonic()
    for rank in (0, 1):
        counts.set(rank, "idle", IDLE_BEATS)
    notes[0].touch()
    wait_for(notes, counts)
    assert time.monotonic() - began < HANG_S


def test_work_without_an_end_is_given_up(notes: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "LONGEST_S", 0.5)
    wait_for(notes, Counts(2))


def test_a_process_counts_the_beats_since_it_last_computed() -> None:
    counts, done = Counts(1), threading.Event()

    def compute() -> None:
        while not done.is_set():
            sum(range(1000))

    threading.Thread(target=probe._count_idle_beats, args=(0, counts), daemon=True).start()
    deadline = time.monotonic() + HANG_S
    while counts.of(0)["idle"] < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert counts.of(0)["idle"] >= 3
    computing = threading.Thread(target=compute)
    computing.start()
    while counts.of(0)["idle"] > 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    reset = counts.of(0)["idle"] == 0
    done.set()
    computing.join()
    assert reset
