"""A hash of each global random state, in about ten microseconds."""

from __future__ import annotations

import random
import sys

import torch

GENERATORS = ("torch", "python", "numpy", "cuda")


def state_hashes() -> dict[str, int]:
    """`torch`, `python`, `numpy` if it is imported, and `cuda` for all devices if they are in use."""
    hashes = {name: state_hash(name) for name in GENERATORS}
    return {name: state for name, state in hashes.items() if state is not None}


def state_hash(generator: str) -> int | None:
    """Of one of `GENERATORS`; None if it is not in use."""
    if generator == "torch":
        return _of(torch.get_rng_state())
    if generator == "python":
        return hash(random.getstate())
    if generator == "numpy":
        if (numpy := sys.modules.get("numpy")) is None:
            return None
        state = numpy.random.get_state(legacy=True)
        return hash((state[1].tobytes(), *state[2:]))
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):  # type: ignore[no-untyped-call]
        return None
    return hash(tuple(_of(torch.cuda.get_rng_state(device)) for device in range(torch.cuda.device_count())))


def _of(state: torch.Tensor) -> int:
    return hash(state.numpy().tobytes())
