"""Checks compute with one thread, whatever the program that grades uses, and that program gets its own number back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import torch

from labs.grading import ForkServer, grade
from labs.grading.catalog import Lab
from labs.grading.one_thread import one_thread

CHECKS = """
import torch
IMPORTED_WITH = torch.get_num_threads()

@check(kind="invariant", title="t", property="p", instrument="i")
def test_threads(submission, rng):
    submission.call("gripper_loss", rng.normal(2), rng.normal(2, 1))
    expect([IMPORTED_WITH, torch.get_num_threads()], "the threads").equals([1, 1])
"""


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_checks_compute_with_one_thread_and_the_caller_keeps_its_own(
    lab_with: Callable[..., Lab], solution: dict[str, str], server: ForkServer
) -> None:
    found = grade(lab_with(CHECKS), solution, server=server)
    assert found.passed, found.reason
    assert torch.get_num_threads() == 3


def test_the_number_is_restored_after_an_exception() -> None:
    with pytest.raises(ZeroDivisionError), one_thread():
        raise ZeroDivisionError
    assert torch.get_num_threads() == 3


def test_two_threads_that_overlap_leave_the_number_as_it_was() -> None:
    inside, leave = threading.Event(), threading.Event()
    seen = []

    def second() -> None:
        with one_thread():
            inside.set()
            leave.wait()
            seen.append(torch.get_num_threads())
        seen.append(torch.get_num_threads())

    other = threading.Thread(target=second)
    with one_thread():
        other.start()
        inside.wait()
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3
    leave.set()
    other.join()
    assert seen == [1, 3]
    assert torch.get_num_threads() == 3
