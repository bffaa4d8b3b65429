"""The global random states of Python, NumPy and torch on each device."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Randomness:
    """The states of Python's generator, of NumPy's if it is imported, of torch's, and of the CUDA devices in use."""

    python: tuple[Any, ...]
    numpy: tuple[Any, ...] | None
    torch: Tensor
    devices: dict[str, Tensor]
    """`cuda:0` → its state."""

    @classmethod
    def now(cls) -> Randomness:
        """A copy of the current states, without waiting for a device."""
        numpy = sys.modules.get("numpy")
        return cls(
            python=random.getstate(),
            numpy=numpy.random.get_state() if numpy is not None else None,
            torch=torch.get_rng_state(),
            devices=_device_states(),
        )

    def restore(self) -> None:
        """Restore all states, so that the same random numbers are drawn again."""
        random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy"].random.set_state(self.numpy)
        torch.set_rng_state(self.torch)
        for device, state in self.devices.items():
            torch.cuda.set_rng_state(state, device)


@contextlib.contextmanager
def same_randomness(seed: int | None = None) -> Iterator[None]:
    """Restore all random states on exit. With `seed`, seed them on entry. For reproducible passes."""
    before = Randomness.now()
    mps = torch.mps.get_rng_state() if torch.backends.mps.is_available() else None
    try:
        if seed is not None:
            random.seed(seed)
            _seed_torch(seed)
            if before.numpy is not None:
                sys.modules["numpy"].random.seed(seed)
        yield
    finally:
        before.restore()
        if mps is not None:
            torch.mps.set_rng_state(mps)


def _seed_torch(seed: int) -> None:
    """Seed the generators whose states are restored.

    `torch.manual_seed` also queues a call for each kind of device that is not in use yet, with the formatted stack of
    its caller, which takes milliseconds below a deep stack.
    """
    torch.default_generator.manual_seed(seed)
    for device in _device_states():
        torch.cuda.default_generators[torch.device(device).index].manual_seed(seed)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(seed)


def _device_states() -> dict[str, Tensor]:
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):  # type: ignore[no-untyped-call]
        return {}
    return {f"cuda:{index}": torch.cuda.get_rng_state(index) for index in range(torch.cuda.device_count())}
