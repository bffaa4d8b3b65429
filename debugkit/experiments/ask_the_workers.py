"""Ask two workers of a loader for the same sample, again and again, and compare what comes."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from debugkit.experiments import experiment
from debugkit.experiments.bit_digest import digest
from debugkit.finding import NotExamined
from debugkit.loader_samples import generator_state
from debugkit.observations.worker_randomness import WorkerRandomness, WorkersRandomness
from debugkit.restore import same_randomness
from debugkit.structure import tensors_in
from debugkit.subject import Subject

_ASKED = 4  # times of each worker
_PATIENCE_S = 60.0


@experiment(WorkersRandomness, cost=0, requires=("dataloader",))
def ask_the_workers(subject: Subject) -> WorkersRandomness:
    """Starts two workers twice, on copies of the data set, and reads one sample eight times from each pair."""
    found, whys = [], []
    for role, loader in subject.loaders.items():
        why = _why_not(loader)
        if why is None and isinstance(loader, DataLoader):
            found.append(_asked(role, loader))
        elif why is not None:
            whys.append(why)
    if not found:
        raise NotExamined(whys[0] if whys else "No data loader was given: pass dataloader=.")
    return WorkersRandomness(tuple(found))


def _why_not(loader: Iterable[Any]) -> str | None:
    if not isinstance(loader, DataLoader):
        return "The loader is no torch DataLoader, so its workers are not known."
    if loader.num_workers < 1:
        return "The loader has no workers: it draws in this process."
    if isinstance(loader.dataset, IterableDataset) or not _size(loader.dataset):
        return "The data set is iterated and not indexed, so that no sample can be asked for twice."
    return None


def _size(dataset: Dataset[Any]) -> int:
    return len(dataset) if hasattr(dataset, "__len__") else 0


def _asked(role: str, loader: DataLoader[Any]) -> WorkerRandomness:
    workers = min(2, loader.num_workers)
    # The same index every time: what differs is drawn. Worker w answers requests w, w + workers, w + 2 * workers, …
    with same_randomness(0):
        asking = DataLoader(
            loader.dataset,
            sampler=[_an_index(loader)] * (_ASKED * workers),
            batch_size=1,
            num_workers=workers,
            collate_fn=_content,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
            persistent_workers=loader.persistent_workers,
            timeout=_PATIENCE_S,
        )
        first, second = list(asking), list(asking)
        del asking  # ends the persistent ones
    own, other = first[0::workers], first[1::workers]
    return WorkerRandomness(
        role=role,
        workers=loader.num_workers,
        varies=len(set(own)) > 1,
        workers_agree=workers > 1 and own == other,
        epochs_agree=own == second[0::workers],
        generator=_generator_in(loader.dataset),
    )


def _an_index(loader: DataLoader[Any]) -> Any:
    """One that the loader's own sampler gives, whose generator is then put back; 0 where it gives none."""
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
    """Runs in the worker: a digest of the sample, whatever it is made of."""
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
    """The attribute path of a random generator that a data set holds, its transforms included."""
    while isinstance(value, Subset):
        value = value.dataset
    for name, held in vars(value).items() if hasattr(value, "__dict__") else ():
        if generator_state(held) is not None:
            return str(name)
        inner = held if not isinstance(held, list | tuple) else next(iter(held), None)
        if depth and hasattr(inner, "__dict__") and (found := _generator_in(inner, depth - 1)) is not None:
            return f"{name}.{found}"
    return None
