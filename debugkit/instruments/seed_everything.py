"""seed_everything: every source of random numbers from one seed, loader workers included."""

from __future__ import annotations

import os
import random
import sys
from dataclasses import dataclass
from typing import Any

import torch

from debugkit.plain_data import PlainData


@dataclass(frozen=True)
class Seeded(PlainData):
    """What `seed_everything` set. `loader()` gives the arguments that make a loader's order and workers repeatable."""

    seed: int
    deterministic: bool
    workers: bool
    seeded: tuple[str, ...]
    left_alone: tuple[str, ...]

    def loader(self) -> dict[str, Any]:
        """`DataLoader(dataset, shuffle=True, **seeded.loader())`; a new generator each time; {} without workers."""
        if not self.workers:
            return {}
        return {"generator": torch.Generator().manual_seed(self.seed), "worker_init_fn": seed_worker}

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {', '.join(self.seeded)}"]
        lines += [f"  not set: {one}" for one in self.left_alone]
        if self.workers:
            lines.append("  for each DataLoader: DataLoader(…, **seeded.loader())")
        return "\n".join(lines)


def seed_everything(seed: int, *, deterministic: bool = False, workers: bool = True) -> Seeded:
    """Seed Python, NumPy (if imported) and PyTorch on every device, and return what was set.

    With `deterministic`, PyTorch uses deterministic kernels and raises where there is none. That is slower, and matrix
    products on CUDA need CUBLAS_WORKSPACE_CONFIG, which is set here and takes effect if CUDA is not in use yet. With
    `workers`, `.loader()` gives a DataLoader's arguments. Equal results also need an equal number of threads. Objects
    that hold a generator of their own are not seeded.

    Raises ValueError if the seed is not in 0 … 2**32 - 1, the range that NumPy takes.

    >>> seeded = seed_everything(7)
    >>> first = torch.rand(1)
    >>> bool(torch.equal(first, (seed_everything(7), torch.rand(1))[1])), sorted(seeded.loader())
    (True, ['generator', 'worker_init_fn'])
    """
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be a whole number from 0 to {2**32 - 1}, but is {seed!r}.")
    random.seed(seed)
    torch.manual_seed(seed)  # every device's generator, also of devices not yet in use
    seeded, left_alone = ["Python's random", "torch"], []
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
        seeded.append("numpy.random")
    else:
        left_alone.append("numpy.random (NumPy is not imported yet)")
    if torch.cuda.is_available():
        seeded.append(f"{torch.cuda.device_count()} CUDA device(s)")
    if "PYTHONHASHSEED" not in os.environ:
        left_alone.append("the order of Python sets of strings (start Python with PYTHONHASHSEED=0)")
    _set_deterministic(deterministic)
    if deterministic:
        seeded.append("deterministic algorithms")
    return Seeded(seed, deterministic, workers, tuple(seeded), tuple(left_alone))


def seed_worker(_worker_id: int) -> None:
    """A DataLoader's worker_init_fn: Python's and NumPy's generators from the worker's own torch seed.

    Today's PyTorch does this itself; older versions gave NumPy the same state in all workers (PyTorch issue 5059).
    """
    seed = torch.initial_seed() % 2**32  # the loader's base seed plus the worker's number
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


def _set_deterministic(deterministic: bool) -> None:
    """Set both values, so that a later call with False takes effect."""
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(deterministic)
    torch.backends.cudnn.deterministic = deterministic
    torch.backends.cudnn.benchmark = False if deterministic else torch.backends.cudnn.benchmark
