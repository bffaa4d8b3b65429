"""Read the same sample several times with two workers of a loader, and compare the results."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from debugkit.finding import NotExamined
from debugkit.interventions.bit_digest import digest
from debugkit.interventions.program_lines import batches_made_at
from debugkit.loader_samples import generator_state
from debugkit.randomness import same_randomness
from debugkit.rules.dk702_worker_randomness_repeats import WorkerRandomness, WorkersRandomness
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in

_READS = 4  # of the sample, by each worker
_TIMEOUT_S = 60.0


def ask_the_workers(setup: TrainingSetup) -> WorkersRandomness:
    """Start two workers twice, on copies of the data set, and read one sample eight times with each pair."""
    found, whys = [], []
    for role, loader in setup.loaders.items():
        why = _why_not(loader)
        if why is None and isinstance(loader, DataLoader):
            found.append(_read_by_workers(role, loader))
        elif why is not None:
            whys.append(why)
    if not found:
        raise NotExamined(whys[0] if whys else "No data loader was given: pass dataloader=.")
    return WorkersRandomness(tuple(found))


def _why_not(loader: Iterable[Any]) -> str | None:
    if not isinstance(loader, DataLoader):
        return "The loader is not a torch DataLoader, so its workers are unknown."
    if loader.num_workers < 1:
        return "The loader has no workers: it reads samples in this process."
    if isinstance(loader.dataset, IterableDataset) or not _size(loader.dataset):
        return "The data set is iterated and not indexed, so no sample can be read twice."
    return None


def _size(dataset: Dataset[Any]) -> int:
    return len(dataset) if hasattr(dataset, "__len__") else 0


def _read_by_workers(role: str, loader: DataLoader[Any]) -> WorkerRandomness:
    workers = min(2, loader.num_workers)
    # Always the same index, so every difference is random. Worker w reads items w, w + workers, w + 2 * workers, …
    with same_randomness(0):
        reading = DataLoader(
            loader.dataset,
            sampler=[_an_index(loader)] * (_READS * workers),
            batch_size=1,
            num_workers=workers,
            collate_fn=_content,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
            persistent_workers=loader.persistent_workers,
            timeout=_TIMEOUT_S,
        )
        first, second = list(reading), list(reading)
        del reading  # ends persistent workers
    own, other = first[0::workers], first[1::workers]
    return WorkerRandomness(
        role=role,
        workers=loader.num_workers,
        varies=len(set(own)) > 1,
        workers_agree=workers > 1 and own == other,
        epochs_agree=own == second[0::workers],
        generator=_generator_in(loader.dataset),
        made_at=batches_made_at(loader),
    )


def _an_index(loader: DataLoader[Any]) -> Any:
    """The first index of the loader's own sampler, whose generator is restored; 0 if it gives none."""
    generator = getattr(loader.sampler, "generator", None)
    state = None if generator is None else generator.get_state()
    with contextlib.suppress(TypeError):
        try:
            return next(iter(loader.sampler), 0)
        finally:
            if generator is not None:
                generator.set_state(state)
    return 0


def _content(samples: list[Any]) -> bytes:
    """A digest of the sample, of whatever type; runs in the worker."""
    return digest(_tensors_from(samples[0]))


def _tensors_from(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, dict):
        return {str(key): _tensors_from(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_tensors_from(item) for item in value]
    if next(tensors_in(value), None) is not None:
        return value
    return torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)  # a NumPy array, an image, a number


def _generator_in(value: Any, depth: int = 3) -> str | None:
    """The attribute path of a random generator that a data set or one of its transforms holds."""
    while isinstance(value, Subset):
        value = value.dataset
    for name, held in vars(value).items() if hasattr(value, "__dict__") else ():
        if generator_state(held) is not None:
            return str(name)
        inner = held if not isinstance(held, list | tuple) else next(iter(held), None)
        if depth and hasattr(inner, "__dict__") and (found := _generator_in(inner, depth - 1)) is not None:
            return f"{name}.{found}"
    return None
