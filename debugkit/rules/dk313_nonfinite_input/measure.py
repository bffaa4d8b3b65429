"""Searches the batch and the first batches of each loader for NaN and Inf, and checks whether they reach the loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from debugkit.finding import NotExamined
from debugkit.interventions.passes import evaluate
from debugkit.loader_samples import batches_of, can_be_read_once
from debugkit.rules.dk313_nonfinite_input import NonfiniteInput, NonfiniteInputs
from debugkit.setup import TrainingSetup
from debugkit.structure import clone_tensors, tensors_in

_ROWS_NAMED = 5
_MASKS = ("mask", "bias")


def read_the_inputs(setup: TrainingSetup) -> NonfiniteInputs:
    """Run one pass with the first batch that has a non-finite value; no pass if there is none."""
    if setup.batch is None and not setup.loaders:
        raise NotExamined("No batch was given: pass batch= or dataloader=.")
    found: list[NonfiniteInput] = []
    suspect: Any = None
    count = 0
    for role, number, batch in _all_batches(setup):
        count += 1
        here = list(_nonfinite(role, number, batch))
        if here and suspect is None:
            suspect = clone_tensors(batch)
        known = {(each.role, each.path, each.kind) for each in found}
        found += [each for each in here if (each.role, each.path, each.kind) not in known]
    return NonfiniteInputs(tuple(found), None if suspect is None else _result_is_finite(setup, suspect), count)


def _all_batches(setup: TrainingSetup) -> Iterator[tuple[str, int, Any]]:
    if setup.batch is not None:
        yield "batch", 0, setup.batch
    for role, loader in setup.loaders.items():
        if can_be_read_once(loader):
            continue  # reading it would consume batches that training needs
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


def _result_is_finite(setup: TrainingSetup, batch: Any) -> bool | None:
    try:
        result = evaluate(setup, batch, output_needed=False)
    except Exception:
        return None
    # -inf in outputs can be a mask on logits. A non-finite loss is never intended.
    return bool(torch.isfinite(result.loss)) and not any(
        bool(tensor.isnan().any()) for tensor in result.outputs.values()
    )
