"""Put back the columns that a Hugging Face Trainer drops, one by one: does the loss miss any of them?

The Trainer's collator is recognised by what it holds, `signature_columns` and `data_collator`; nothing is imported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from debugkit.experiments import experiment
from debugkit.finding import NotExamined
from debugkit.loader_samples import left_as_it_was
from debugkit.observations.dropped_columns import DroppedColumns, NeededColumn
from debugkit.restore import same_randomness
from debugkit.step import one_line
from debugkit.structure import map_tensors
from debugkit.subject import Subject

_SAMPLES = 2
_MOST = 8  # columns tried alone
_FLOOR = 1e-5  # relative; a kernel that adds in another order stays below it
_Outcome = float | str


@experiment(DroppedColumns, cost=4, requires=("dataloader",))
def put_columns_back(subject: Subject) -> DroppedColumns:
    """Two samples, in evaluation mode, without gradients: with all columns, with those that are left, and between."""
    loader: Any = subject.loaders.get("train")
    collate = getattr(loader, "collate_fn", None)
    kept, inner = getattr(collate, "signature_columns", None), getattr(collate, "data_collator", None)
    if not (isinstance(kept, Iterable) and callable(inner)):
        raise NotExamined("The train loader's collator drops no columns: it is not a Hugging Face Trainer's.")
    with left_as_it_was(loader):
        samples = _samples(loader.dataset)
        every = tuple(dict.fromkeys(key for sample in samples for key in sample))
        dropped = tuple(column for column in every if column not in set(kept))
        if not dropped:
            return DroppedColumns((), (), len(samples), _FLOOR)
        needed = _needed(_losses(subject, samples, inner), every, dropped)
    return DroppedColumns(dropped, tuple(needed), len(samples), _FLOOR)


def _samples(dataset: Any) -> list[Mapping[str, Any]]:
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")) or len(dataset) == 0:
        raise NotExamined("The data set is a stream, from which training would miss what is read now.")
    samples = [dataset[index] for index in range(min(_SAMPLES, len(dataset)))]
    if not all(isinstance(sample, Mapping) for sample in samples):
        raise NotExamined("The samples are no mappings, so they have no columns to drop.")
    return samples


def _losses(
    subject: Subject, samples: Sequence[Mapping[str, Any]], collate: Callable[[list[Any]], Any]
) -> Callable[[Iterable[str]], _Outcome]:
    """A function from columns to the loss of the samples with those alone, or to what was raised in its place."""
    device = next((p.device for p in subject.model.parameters()), torch.device("cpu"))
    known: dict[frozenset[str], _Outcome] = {}

    def measure(columns: frozenset[str]) -> _Outcome:
        try:
            batch = collate([{key: value for key, value in sample.items() if key in columns} for sample in samples])
            batch = map_tensors(batch, lambda _, tensor: tensor.to(device))
            with _evaluation(subject.model), torch.no_grad(), same_randomness(0):
                return float(subject.loss(batch))
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
        if isinstance(complete, str):  # some column is in the way: add this one to what is left
            found.append(NeededColumn((column,), without, loss([*left, column])))
        else:  # take it from the whole
            found.append(NeededColumn((column,), loss([other for other in every if other != column]), complete))
    found = [needed for needed in found if _differ(needed.without, needed.with_it)]
    if not found and _differ(without, complete):
        found = [NeededColumn(tuple(dropped), without, complete)]  # any of them will do
    if not found and isinstance(without, str):
        raise NotExamined(f"There is no loss with the dropped columns and none without them: {without}.")
    return found


def _differ(without: _Outcome, with_it: _Outcome) -> bool:
    """Whether a loss comes of it that is not there otherwise, or another one."""
    if isinstance(with_it, str) or math.isnan(with_it):
        return False
    return isinstance(without, str) or not math.isclose(without, with_it, rel_tol=_FLOOR, abs_tol=_FLOOR)


class _evaluation:  # noqa: N801  # reads as the context manager it is
    """The model in evaluation mode, each module's own flag put back."""

    def __init__(self, model: nn.Module) -> None:
        self._flags = [(module, module.training) for module in model.modules()]

    def __enter__(self) -> None:
        for module, _ in self._flags:
            module.training = False

    def __exit__(self, *error: object) -> None:
        for module, training in self._flags:
            module.training = training
