"""Compute which indices each loader's sampler would give on every rank, in this process alone."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from debugkit.distributed.wrappers import is_distributed
from debugkit.finding import NotExamined
from debugkit.interventions.program_lines import own_definition
from debugkit.loader_samples import left_as_it_was
from debugkit.randomness import same_randomness
from debugkit.rules.dk805_sampler_partition import Coverage, SamplerPartition, SamplerPartitions
from debugkit.setup import TrainingSetup

_NAMES = (("num_replicas", "rank"), ("num_processes", "process_index"), ("world_size", "rank"))
"""The attributes for the number of ranks and the own rank in torch, in accelerate and in most custom samplers."""
_MOST = 200_000
"""Indices; a larger data set is not examined."""
_MOST_RANKS = 16
_SEED = 20_260


def partition_over_ranks(setup: TrainingSetup) -> SamplerPartitions:
    """Set a copy of the sampler to each rank in turn, and read its indices; no data are read."""
    found = [seen for role, loader in setup.loaders.items() if (seen := _partition(role, loader)) is not None]
    if not found:
        raise NotExamined(
            "No loader has a sampler that divides its samples between several ranks and whose indices can be read."
        )
    return SamplerPartitions(tuple(found))


def _partition(role: str, loader: Any) -> SamplerPartition | None:
    sampler, names = _sampler_of(loader)
    samples = _length(getattr(loader, "dataset", None))
    if sampler is None or samples is None or samples > _MOST:
        return None
    if names is not None:
        world_size = int(getattr(sampler, names[0]))
    else:
        import torch.distributed as dist

        world_size = dist.get_world_size() if is_distributed() else 1
    if not 1 < world_size <= _MOST_RANKS:
        return None
    with left_as_it_was(loader):
        together = [_order(sampler, names, rank, seed=_SEED) for rank in range(world_size)]
        drifted = [_order(sampler, names, rank, seed=_SEED + rank) for rank in range(world_size)]
        size = _size_of_a_batch(loader, sampler, names)
    if any(order is None or len(set(order)) < len(order) > samples for order in (*together, *drifted)):
        return None  # not indices, or drawn with replacement
    if together[0] == together[1] and names is not None and len(together[0] or ()) < samples:
        return None  # the sampler computed its part when it was created, so changing the rank has no effect
    lengths = {len(order or ()) for order in (*together, *drifted)}
    full = len(lengths) == 1 and all(length > 0 and length % size == 0 for length in lengths)
    whole = world_size * size if full else world_size  # the samples that all ranks visit together
    return SamplerPartition(
        role=role,
        sampler=type(sampler).__name__,
        world_size=world_size,
        samples=samples,
        padding=-samples % whole,
        tail=samples % whole,
        knows_its_rank=names is not None and together[0] != together[1],
        together=_coverage(together, samples),
        drifted=_coverage(drifted, samples),
        defined_at=own_definition(getattr(type(sampler), "__iter__", None)),
    )


def _sampler_of(loader: Any) -> tuple[Any, tuple[str, str] | None]:
    """The sampler that divides among ranks, with its attribute names; otherwise the sampler of indices and None."""
    batches = getattr(loader, "batch_sampler", None)
    own = getattr(batches, "sampler", None) or getattr(loader, "sampler", None)
    for sampler in (batches, own):
        for names in _NAMES:
            if sampler is not None and all(isinstance(getattr(sampler, name, None), int) for name in names):
                return sampler, names
    replaces = bool(getattr(own, "replacement", False))
    return (None if replaces or not hasattr(own, "__iter__") else own), None


def _size_of_a_batch(loader: Any, sampler: Any, names: tuple[str, str] | None) -> int:
    with _as_rank(sampler, names, 0) as copied, same_randomness(_SEED):
        first = next(iter(copied), None)
    return (len(first) if isinstance(first, list | tuple) else getattr(loader, "batch_size", None)) or 1


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except TypeError:
        return None  # an iterable data set


def _order(sampler: Any, names: tuple[str, str] | None, rank: int, seed: int) -> list[int] | None:
    """The indices that `rank` visits if its random numbers start at `seed`; None if they are not integers."""
    with _as_rank(sampler, names, rank) as copied, same_randomness(seed):
        indices: list[int] = []
        for entry in copied:
            for index in entry if isinstance(entry, list | tuple) else [entry]:
                if not hasattr(index, "__index__") or len(indices) > _MOST:
                    return None
                indices.append(int(index))
    return indices


@contextmanager
def _as_rank(sampler: Any, names: tuple[str, str] | None, rank: int) -> Iterator[Iterable[Any]]:
    """A copy of the sampler set to `rank`; its generators are copied too, so that every rank has the same start."""
    copied = copy.copy(sampler)
    for name, value in vars(sampler).items():
        if hasattr(value, "get_state") and hasattr(value, "set_state"):
            generator = type(value)(device=getattr(value, "device", "cpu"))
            generator.set_state(value.get_state())
            setattr(copied, name, generator)
    if names is not None:
        setattr(copied, names[1], rank)
    yield copied


def _coverage(orders: list[list[int] | None], samples: int) -> Coverage:
    visits = Counter(index for order in orders for index in set(order or ()))
    return Coverage(
        overlapping=sum(count > 1 for count in visits.values()),
        missed=samples - len(visits),
        of_each_rank=tuple(len(order or ()) for order in orders),
    )
