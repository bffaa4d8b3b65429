"""Reads pairs of samples one batch apart from the training loader's data set and counts how often labels differ."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from debugkit.finding import NotExamined
from debugkit.interventions.batch_roles import entry
from debugkit.interventions.program_lines import batches_made_at, files_on_the_stack, line_that_built
from debugkit.loader_samples import left_as_it_was
from debugkit.rules.dk318_sorted_training_data import LabelOrder
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in

_PAIRS = 160
_PAIRS_IN_A_BATCH = 16
_SMALLEST_BATCH = 16
"""Samples that are nearer may be groups on purpose, in batches of one."""
_TIMEOUT_S = 60.0
_SHUFFLING = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
_LABELS = ("labels", "label", "targets", "target", "y")


def read_pairs_of_samples(setup: TrainingSetup) -> LabelOrder:
    """Compare the labels of samples i and i + distance, for up to 160 values of i. No forward pass."""
    loader = _indexed(setup.loaders.get("train"))
    if isinstance(loader.sampler, _SHUFFLING) and type(loader.batch_sampler) is BatchSampler:
        return LabelOrder.shuffled(len(loader.dataset), loader.batch_size or 1)  # type: ignore[arg-type]
    _expect_in_order(loader)
    path = _path_of_labels(setup)
    samples, batch_size = len(loader.dataset), loader.batch_size or 1  # type: ignore[arg-type]
    distance = max(batch_size, _SMALLEST_BATCH) - 1
    first, second, overlapping = _read(loader, path, samples, distance)
    everything = torch.cat([first, second])
    _, counts = torch.unique(everything, return_counts=True)
    after_shuffle = 1 - float((counts.double() / len(everything)).square().sum())
    different = int((first != second).sum())
    return LabelOrder(
        path=path,
        samples=samples,
        batch_size=batch_size,
        distance=distance,
        pairs=len(first),
        different=different,
        classes=len(counts),
        after_shuffle=after_shuffle,
        log10_p=_log10_at_most(different, len(first), after_shuffle),
        overlapping=overlapping,
        made_at=line_that_built(loader, files_on_the_stack()) or batches_made_at(loader),
    )


def _indexed(loader: Iterable[Any] | None) -> DataLoader[Any]:
    if not isinstance(loader, DataLoader):
        raise NotExamined("The training loader is not a torch DataLoader, so its order is unknown.")
    if isinstance(loader.dataset, IterableDataset) or not hasattr(loader.dataset, "__len__"):
        raise NotExamined("The data set of the training loader is iterated and not indexed: it may shuffle.")
    return loader


def _expect_in_order(loader: DataLoader[Any]) -> None:
    if type(loader.sampler) is not SequentialSampler or type(loader.batch_sampler) not in (BatchSampler, type(None)):
        raise NotExamined("The training loader does not read its data set in order.")
    if loader.batch_size is None or len(loader.dataset) < 2 * _SMALLEST_BATCH:  # type: ignore[arg-type]
        raise NotExamined("The data set of the training loader has fewer than 32 samples, or its samples are batches.")


def _path_of_labels(setup: TrainingSetup) -> str:
    declared = setup.declare.labels
    found = entry(setup, (declared,) if declared else _LABELS)
    if found is not None:
        return found[0]
    if isinstance(setup.batch, list | tuple) and len(setup.batch) > 1:
        return str(len(setup.batch) - 1)  # (inputs, target), by convention
    raise NotExamined("The batch has no labels: pass Declare(labels=…).")


def _read(loader: DataLoader[Any], path: str, samples: int, distance: int) -> tuple[Tensor, Tensor, bool]:
    """The labels of both samples of each pair, and whether the inputs of neighbours overlap."""
    pairs = min(_PAIRS, samples // 2)
    last = max(samples - 1 - distance, 0)
    starts = [round(k * last / max(pairs - 1, 1)) for k in range(pairs)]
    chosen = [starts[k : k + _PAIRS_IN_A_BATCH] for k in range(0, pairs, _PAIRS_IN_A_BATCH)]
    batches = [[i + k for i in each for k in (0, min(distance, samples - 1))] for each in chosen]
    with left_as_it_was(loader, seed=0):
        neighbours, *read = _reader(loader, [[0, 1], *batches])
    labels = [_class_ids(dict(tensors_in(batch)).get(path)) for batch in read]
    overlapping = any(_overlap(tensor) for name, tensor in tensors_in(neighbours) if name != path)
    return torch.cat([each[0::2] for each in labels]), torch.cat([each[1::2] for each in labels]), overlapping


def _reader(loader: DataLoader[Any], batches: list[list[int]]) -> Iterator[Any]:
    workers = min(2, loader.num_workers)
    return iter(
        DataLoader(
            loader.dataset,
            batch_sampler=batches,
            collate_fn=loader.collate_fn,
            num_workers=workers,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context if workers else None,
            timeout=_TIMEOUT_S if workers else 0,
        )
    )


def _class_ids(labels: Tensor | None) -> Tensor:
    """One label for each sample. Raises NotExamined for sequences and numbers."""
    if labels is None or labels.numel() != len(labels) or len(labels) % 2:
        raise NotExamined("The labels are not one class for each sample.")
    flat = labels.detach().cpu().flatten()
    if flat.is_floating_point() and not bool(((flat == 0) | (flat == 1)).all()):
        raise NotExamined("The targets are numbers and not classes.")
    return flat.long()


def _overlap(rows: Tensor) -> bool:
    """Whether the second of the first two rows is the first one, moved along its first dimension."""
    if rows.ndim < 2 or len(rows) < 2 or rows.shape[1] < 4:
        return False
    one, other = rows[0], rows[1]
    if bool((one == one[:1]).all()):
        return False
    return any(torch.equal(one[by:], other[:-by]) for by in range(1, len(one) // 2 + 1))


def _log10_at_most(different: int, pairs: int, probability: float) -> float:
    """log10 of the binomial probability that at most this many of the pairs differ."""
    if probability <= 0 or different >= pairs:
        return 0.0
    logs = [
        math.lgamma(pairs + 1)
        - math.lgamma(k + 1)
        - math.lgamma(pairs - k + 1)
        + k * math.log(probability)
        + (pairs - k) * math.log1p(-probability)
        for k in range(different + 1)
    ]
    highest = max(logs)
    return min(0.0, (highest + math.log(sum(math.exp(each - highest) for each in logs))) / math.log(10))
