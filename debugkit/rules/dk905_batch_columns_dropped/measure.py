"""Restore the columns that a Hugging Face Trainer drops, one by one, and see whether the loss changes.

The Trainer's collator is recognised by its attributes `signature_columns` and `data_collator`; nothing is imported.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from debugkit.finding import NotExamined
from debugkit.frames import one_line
from debugkit.loader_samples import left_as_it_was
from debugkit.randomness import same_randomness
from debugkit.rules.dk905_batch_columns_dropped import DroppedColumns, NeededColumn
from debugkit.setup import TrainingSetup
from debugkit.structure import map_tensors

_SAMPLES = 2
_MOST = 8  # columns that are tried one by one
_FLOOR = 1e-5  # relative; the effect of another order of additions stays below it
_Outcome = float | str


def put_columns_back(setup: TrainingSetup) -> DroppedColumns:
    """Compute the loss of two samples with all columns, with the kept ones, and with single dropped ones added."""
    loader: Any = setup.loaders.get("train")
    collate = getattr(loader, "collate_fn", None)
    kept, inner = getattr(collate, "signature_columns", None), getattr(collate, "data_collator", None)
    if not (isinstance(kept, Iterable) and callable(inner)):
        raise NotExamined("The collator of the train loader drops no columns: it is not a Hugging Face Trainer's.")
    with left_as_it_was(loader):
        samples = _samples(loader.dataset)
        every = tuple(dict.fromkeys(key for sample in samples for key in sample))
        dropped = tuple(column for column in every if column not in set(kept))
        if not dropped:
            return DroppedColumns((), (), len(samples), _FLOOR)
        needed = _needed(_losses(setup, samples, inner), every, dropped)
    return DroppedColumns(dropped, tuple(needed), len(samples), _FLOOR)


def _samples(dataset: Any) -> list[Mapping[str, Any]]:
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")) or len(dataset) == 0:
        raise NotExamined("The data set is a stream, and training would miss the samples that are read now.")
    samples = [dataset[index] for index in range(min(_SAMPLES, len(dataset)))]
    if not all(isinstance(sample, Mapping) for sample in samples):
        raise NotExamined("The samples are not mappings, so they have no columns to drop.")
    return samples


def _losses(
    setup: TrainingSetup, samples: Sequence[Mapping[str, Any]], collate: Callable[[list[Any]], Any]
) -> Callable[[Iterable[str]], _Outcome]:
    """A function from columns to the loss of the samples with only these columns, or to the error that was raised."""
    device = next((p.device for p in setup.model.parameters()), torch.device("cpu"))
    known: dict[frozenset[str], _Outcome] = {}

    def measure(columns: frozenset[str]) -> _Outcome:
        try:
            batch = collate([{key: value for key, value in sample.items() if key in columns} for sample in samples])
            batch = map_tensors(batch, lambda _, tensor: tensor.to(device))
            with _evaluation(setup.model), torch.no_grad(), same_randomness(0):
                return float(setup.loss(batch))
        except Exception as error:
            return one_line(error)

    def loss(columns: Iterable[str]) -> _Outcome:
        wanted = frozenset(columns)
        if wanted not in known:
            known[wanted] = measure(wanted)
        return known[wanted]

    return loss


def _needed(
    loss: Callable[[Iterable[str]], _Outcome], every: Sequence[str], dropped: Sequence[str]
) -> Iterable[NeededColumn]:
    left = [column for column in every if column not in dropped]
    without, complete = loss(left), loss(every)
    found = []
    for column in dropped[:_MOST]:
        if isinstance(complete, str):  # some column prevents the loss: add this one to the kept columns
            found.append(NeededColumn((column,), without, loss([*left, column])))
        else:  # remove this one from all columns
            found.append(NeededColumn((column,), loss([other for other in every if other != column]), complete))
    found = [needed for needed in found if _differ(needed.without, needed.with_it)]
    if not found and _differ(without, complete):
        found = [NeededColumn(tuple(dropped), without, complete)]  # any one of them is enough
    if not found and isinstance(without, str):
        raise NotExamined(f"The loss cannot be computed, neither with nor without the dropped columns: {without}.")
    return found


def _differ(without: _Outcome, with_it: _Outcome) -> bool:
    """Whether the column makes a loss possible, or changes it."""
    if isinstance(with_it, str) or math.isnan(with_it):
        return False
    return isinstance(without, str) or not math.isclose(without, with_it, rel_tol=_FLOOR, abs_tol=_FLOOR)


@contextlib.contextmanager
def _evaluation(model: nn.Module) -> Iterator[None]:
    """The model in eval mode; on exit the flag of each module is restored."""
    flags = [(module, module.training) for module in model.modules()]
    for module, _ in flags:
        module.training = False
    try:
        yield
    finally:
        for module, training in flags:
            module.training = training
