"""Read the first batch of each loader from two seeds: a global state that is equal afterwards was seeded by it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from debugkit.finding import NotExamined
from debugkit.loader_samples import batches_of
from debugkit.rules.dk705_random_state_repeats import LoaderSeeds
from debugkit.rules.dk705_random_state_repeats.state_hashes import state_hashes
from debugkit.setup import TrainingSetup


def read_from_two_seeds(setup: TrainingSetup) -> LoaderSeeds:
    """Two batches of each loader that has no workers; all generators are restored."""
    loaders = {role: loader for role, loader in setup.loaders.items() if not getattr(loader, "num_workers", 0)}
    if not loaders:
        raise NotExamined("The loaders read in worker processes, whose random states are their own.")
    return LoaderSeeds(tuple((role, _seeded_by(loader)) for role, loader in loaders.items()))


def _seeded_by(loader: Iterable[Any]) -> tuple[str, ...]:
    first, second = _after_a_batch(loader, 1), _after_a_batch(loader, 2)
    return tuple(name for name, state in first.items() if second.get(name) == state and name != "cuda")


def _after_a_batch(loader: Iterable[Any], seed: int) -> dict[str, int]:
    with batches_of(loader, most=1, seed=seed) as batches:
        next(batches, None)
        return state_hashes()
