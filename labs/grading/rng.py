"""The random inputs that a check draws: new in every grade, and repeatable with `lab grade --seed N`.

Each check has its own stream, keyed by the grade's seed and the check's id, so its inputs do not depend on the checks
before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

import torch

_T = TypeVar("_T")


class Rng:
    """Draws tensors from one repeatable stream."""

    def __init__(self, *key: int | str) -> None:
        self._generator = torch.Generator().manual_seed(derive(*key))

    def normal(
        self, *shape: int, mean: float = 0.0, std: float = 1.0, dtype: torch.dtype = torch.float32
    ) -> torch.Tensor:
        """Gaussian values of the given shape."""
        return (torch.randn(*shape, generator=self._generator, dtype=torch.float64) * std + mean).to(dtype)

    def uniform(
        self, *shape: int, low: float = 0.0, high: float = 1.0, dtype: torch.dtype = torch.float32
    ) -> torch.Tensor:
        """Uniform values in [low, high)."""
        return (torch.rand(*shape, generator=self._generator, dtype=torch.float64) * (high - low) + low).to(dtype)

    def integers(self, low: int, high: int, *shape: int) -> torch.Tensor:
        """int64 values in [low, high), `high` excluded."""
        return torch.randint(low, high, shape, generator=self._generator)

    def integer(self, low: int, high: int) -> int:
        """One Python int in [low, high), e.g. a batch size."""
        return int(self.integers(low, high, 1).item())

    def permutation(self, length: int) -> torch.Tensor:
        """0 … length-1 in random order, int64."""
        return torch.randperm(length, generator=self._generator)

    def boolean(self, *shape: int, probability: float = 0.5) -> torch.Tensor:
        """bool values, True with the given probability."""
        return torch.rand(*shape, generator=self._generator) < probability

    def choice(self, options: Sequence[_T]) -> _T:
        """One of the options."""
        return options[self.integer(0, len(options))]

    def seed(self) -> int:
        """A seed for a probe."""
        return self.integer(0, 2**31 - 1)


def derive(*key: int | str) -> int:
    """A 63-bit seed that depends on every part of the key, the same on every machine and Python."""
    text = "\x1f".join(str(part) for part in key)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
