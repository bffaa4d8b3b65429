"""Bytes in use at the end of each training step."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.observations.plain import PlainData


@dataclass(frozen=True)
class MemorySamples(PlainData):
    """One sample every `every` steps, oldest first, from the run's first step on.

    `where` is `cuda:0`, counted by PyTorch's allocator, or `host`, counted by the C library: bytes that are allocated,
    and not what the process keeps in reserve.
    """

    where: str
    every: int
    bytes: tuple[int, ...]
