"""Compares the contents of the training loader with those of each other loader, by index or by hashes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.utils.data import Subset

from debugkit.finding import NotExamined
from debugkit.interventions.batch_roles import labels, target
from debugkit.interventions.program_lines import batches_made_at
from debugkit.loader_samples import batches_of
from debugkit.rules.dk311_train_validation_overlap import DataOverlap, DataOverlaps
from debugkit.rules.dk311_train_validation_overlap.samples import Sample, contents, sample_of
from debugkit.setup import TrainingSetup
from debugkit.structure import batch_size, tensors_in

MOST_BATCHES = 256
MOST_SAMPLES = 2048
_BOOKKEEPING = ("index", "idx", "id", "ids", "timestamp", "weight")


def compare_loaders(setup: TrainingSetup) -> DataOverlaps:
    """Reads each loader once, at most 256 batches. Reads nothing if indices suffice."""
    loaders = dict(setup.loaders)
    train = loaders.pop("train", None)
    if train is None or not loaders:
        raise NotExamined("There is no second loader to compare with: pass dataloader={'train': …, 'validation': …}.")
    pairs = (
        replace(_compare(setup, train, role, each), made_at=batches_made_at(each)) for role, each in loaders.items()
    )
    return DataOverlaps(tuple(pairs))


def _compare(setup: TrainingSetup, train: Iterable[Any], role: str, other: Iterable[Any]) -> DataOverlap:
    own, theirs = _indices(train), _indices(other)
    if own is not None and theirs is not None and own[0] is theirs[0]:
        shared = len(set(own[1]) & set(theirs[1]))
        return DataOverlap("train", role, True, len(own[1]), len(theirs[1]), shared, 0.0, True)
    ours, left_all = _samples(setup, train, seed=1)
    others, right_all = _samples(setup, other, seed=2)
    left, right = contents(ours, others)
    if not left or not right:
        raise NotExamined("The loaders yield no tensors with enough content to compare samples by.")
    known = set(left)
    repeated = 1 - len(known) / len(left)
    shared = sum(content in known for content in right)
    return DataOverlap("train", role, False, len(left), len(right), shared, repeated, left_all and right_all)


def _indices(loader: Any) -> tuple[object, list[int]] | None:
    """The data set that a loader draws from, and the indices that it uses; None if there is no such data set."""
    data, chosen = getattr(loader, "dataset", None), None
    while isinstance(data, Subset):
        inner = list(data.indices)
        chosen = inner if chosen is None else [inner[index] for index in chosen]
        data = data.dataset
    if data is None:
        return None
    if chosen is None:
        chosen = list(range(len(data))) if hasattr(data, "__len__") else None
    return None if chosen is None else (data, chosen)


def _samples(setup: TrainingSetup, loader: Iterable[Any], seed: int) -> tuple[list[Sample], bool]:
    """The inputs of each sample that is not blank, and whether the loader was read completely."""
    samples: list[Sample] = []
    with batches_of(loader, MOST_BATCHES + 1, seed) as batches:
        for number, batch in enumerate(batches):
            if number == MOST_BATCHES or len(samples) >= MOST_SAMPLES:
                return samples, False
            samples += _of_batch(setup, batch)
    return samples, True


def _of_batch(setup: TrainingSetup, batch: Any) -> Iterator[Sample]:
    size = batch_size(batch)
    targets = {found[0] for found in (labels(setup), target(setup)) if found is not None}
    if isinstance(batch, list | tuple) and len(batch) > 1:
        targets.add(str(len(batch) - 1))  # (inputs, target), by convention
    inputs = {
        path: tensor.detach().cpu()
        for path, tensor in tensors_in(batch)
        if tensor.shape[:1] == (size,) and path not in targets and not _is_bookkeeping(path, tensor)
    }
    for row in range(size or 0):
        sample = sample_of({path: tensor[row] for path, tensor in inputs.items()})
        if sample is not None:
            yield sample


def _is_bookkeeping(path: str, tensor: Tensor) -> bool:
    """One number per sample that names it or weighs it. Token ids are a sequence."""
    return path.lower().endswith(_BOOKKEEPING) and tensor[0].numel() == 1
