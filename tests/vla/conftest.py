"""Fixtures of the healthy policy's tests: one thread, a few frames, and a policy from the base checkpoint."""

from collections.abc import Iterator

import pytest
import torch

from labs.vla.dataset import Batch, Frames, collate, demonstrations
from labs.vla.policy import Policy


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # results are bitwise repeatable at a fixed number of threads only
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def frames() -> Frames:
    return demonstrations(512, seed=3)


@pytest.fixture
def batch(frames: Frames) -> Batch:
    return collate(frames, range(8))


@pytest.fixture
def policy() -> Policy:
    return Policy.from_base().eval()
