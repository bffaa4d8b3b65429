"""The child of the pretended device always ends, and a deadlock in it is told from a slow machine."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from debugkit.measurements.second_device import disposable_child
from debugkit.measurements.second_device.disposable_child import ChildFailed, in_child


def test_the_answer_comes_back() -> None:
    assert in_child(lambda: {"sum": 1 + 1}, 60.0) == {"sum": 2}


def test_a_lock_that_another_thread_held_does_not_hang_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disposable_child, "_BLOCKED_S", 0.5)
    monkeypatch.setattr(disposable_child, "_SLICE_S", 0.1)
    lock, release = threading.Lock(), threading.Event()
    holder = threading.Thread(target=lambda: (lock.acquire(), release.wait(), lock.release()))
    holder.start()
    try:
        with pytest.raises(ChildFailed, match="waited for a lock"):
            in_child(lambda: lock.acquire() and None, 600.0)  # the test would take ten minutes without the detection
    finally:
        release.set()
        holder.join()


def test_a_child_that_works_is_not_taken_for_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disposable_child, "_BLOCKED_S", 0.3)
    monkeypatch.setattr(disposable_child, "_SLICE_S", 0.05)

    def work() -> int:
        used = 0
        while time.process_time() < 1.0:
            used += 1
        return used

    assert in_child(work, 600.0) > 0


@pytest.mark.parametrize(
    ("fault", "said"),
    [(lambda: 1 / 0, "ZeroDivisionError"), (lambda: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL")],
    ids=["raises", "is-killed"],
)
def test_a_child_that_fails_is_one_sentence(fault: Callable[[], Any], said: str) -> None:
    with pytest.raises(ChildFailed, match=said):
        in_child(fault, 60.0)
