"""Ends the process group that a fixture of two ranks began."""

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_process_group_outlives_its_test() -> Iterator[None]:
    yield
    if "two_ranks" in sys.modules:
        sys.modules["two_ranks"].clean_up()
