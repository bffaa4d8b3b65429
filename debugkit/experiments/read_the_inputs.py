"""Look for NaN and Inf in the batch and in the first batches of each loader, and see whether they reach the loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from debugkit.experiments import experiment
from debugkit.experiments.passes import evaluate
from debugkit.finding import NotExamined
from debugkit.loader_samples import batches_of, can_be_read_once
from debugkit.observations.nonfinite_inputs import NonfiniteInput, NonfiniteInputs
from debugkit.structure import clone_tensors, tensors_in
from debugkit.subject import Subject

_ROWS_NAMED = 5
_MASKS = ("mask", "bias")


@experiment(NonfiniteInputs, cost=0)
def read_the_inputs(subject: Subject) -> NonfiniteInputs:
    """One pass, of the first batch that has a value that is not finite; none where all are."""
    if subject.batch is None and not subject.loaders:
        raise NotExamined("No batch was given: pass batch= or dataloader=.")
    found: list[NonfiniteInput] = []
    suspect: Any = None
    count = 0
    for role, number, batch in _all_batches(subject):
        count += 1
        here = list(_nonfinite(role, number, batch))
        if here and suspect is None:
            suspect = clone_tensors(batch)
        known = {(each.role, each.path, each.kind) for each in found}
        found += [each for each in here if (each.role, each.path, each.kind) not in known]
    return NonfiniteInputs(tuple(found), None if suspect is None else _result_is_finite(subject, suspect), count)


def _all_batches(subject: Subject) -> Iterator[tuple[str, int, Any]]:
    if subject.batch is not None:
        yield "batch", 0, subject.batch
    for role, loader in subject.loaders.items():
        if can_be_read_once(loader):
            continue  # reading it would take its batches away from training
        with batches_of(loader) as batches:
            for number, batch in enumerate(batches):
                yield role, number, batch


def _nonfinite(role: str, number: int, batch: Any) -> Iterator[NonfiniteInput]:
    for path, tensor in tensors_in(batch):
        if not tensor.is_floating_point() or tensor.is_meta:
            continue
        is_mask = any(word in path.lower() for word in _MASKS)
        for kind, where in (("NaN", tensor.isnan()), ("Inf", tensor.isposinf() if is_mask else tensor.isinf())):
            if bool(where.any()):
                rows = where.flatten(1).any(1).nonzero().flatten() if where.ndim > 1 else where.nonzero().flatten()
                some = tuple(rows[:_ROWS_NAMED].tolist()) if where.ndim else ()
                yield NonfiniteInput(role, number, path, kind, int(where.sum()), where.numel(), some)


def _result_is_finite(subject: Subject, batch: Any) -> bool | None:
    try:
        result = evaluate(subject, batch, output_needed=False)
    except Exception:
        return None
    # -inf in outputs can be a mask on logits; a loss that is not finite never is one.
    return bool(torch.isfinite(result.loss)) and not any(
        bool(tensor.isnan().any()) for tensor in result.outputs.values()
    )
