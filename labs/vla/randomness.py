"""Private randomness: seeded inside a block, without effect on the caller's random state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def private_randomness(seed: int) -> Iterator[None]:
    """Seed the CPU's generator for a block, and restore the caller's state afterwards, even after an error.

    Only the CPU's: `labs.vla` draws all random numbers there and moves them, so a seed gives the same on every device.
    """
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(seed)
        yield
