"""Randomness that is one's own: seeded inside, and outside as if nothing had been drawn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def private_randomness(seed: int) -> Iterator[None]:
    """Seed the CPU's generator for a block and give the caller's state back after it, also after an error.

    Only the CPU's: everything random in `labs.vla` is drawn there and moved, so a seed means the same on every device.
    """
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(seed)
        yield
