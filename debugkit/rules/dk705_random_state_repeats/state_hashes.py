"""A hash of each global random state, in about ten microseconds."""

from __future__ import annotations

import random
import sys

import torch


def state_hashes() -> dict[str, int]:
    """`torch`, `python`, `numpy` if it is imported, and `cuda` for all devices if they are in use."""
    found = {"torch": _of(torch.get_rng_state()), "python": hash(random.getstate())}
    if (numpy := sys.modules.get("numpy")) is not None:
        state = numpy.random.get_state(legacy=True)
        found["numpy"] = hash((state[1].tobytes(), *state[2:]))
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        devices = range(torch.cuda.device_count())
        found["cuda"] = hash(tuple(_of(torch.cuda.get_rng_state(device)) for device in devices))
    return found


def _of(state: torch.Tensor) -> int:
    return hash(state.numpy().tobytes())
