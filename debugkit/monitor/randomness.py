"""The state of every random number generator a step may draw from."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Randomness:
    """Python's, numpy's (where it is imported), torch's, and those of the devices in use."""

    python: tuple[Any, ...]
    numpy: tuple[Any, ...] | None
    torch: Tensor
    devices: dict[str, Tensor]  # "cuda:0" -> its state

    @classmethod
    def now(cls) -> Randomness:
        """A copy of the states as they are; no device is waited for."""
        numpy = sys.modules.get("numpy")
        return cls(
            python=random.getstate(),
            numpy=numpy.random.get_state() if numpy is not None else None,
            torch=torch.get_rng_state(),
            devices=_device_states(),
        )

    def restore(self) -> None:
        """Put every state back, so that the same draws follow."""
        random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy"].random.set_state(self.numpy)
        torch.set_rng_state(self.torch)
        for device, state in self.devices.items():
            torch.cuda.set_rng_state(state, device)


def _device_states() -> dict[str, Tensor]:
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):  # type: ignore[no-untyped-call]
        return {}
    return {f"cuda:{index}": torch.cuda.get_rng_state(index) for index in range(torch.cuda.device_count())}
