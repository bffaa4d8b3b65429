"""Lets the fixtures share `two_ranks`: pytest's importlib mode puts no folder on the path itself."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def no_process_group_outlives_its_test() -> Iterator[None]:
    yield
    if "two_ranks" in sys.modules:
        sys.modules["two_ranks"].clean_up()
