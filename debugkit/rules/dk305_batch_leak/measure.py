"""Replaces sample 0 of the batch by another one. In eval mode the rows of all other samples must not change."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from debugkit.finding import NotExamined
from debugkit.interventions.passes import Pass, distance, evaluate, floor, with_rows
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.rules.dk305_batch_leak import BatchIndependence
from debugkit.setup import TrainingSetup
from debugkit.structure import batch_size, tensors_in


def replace_sample_zero(setup: TrainingSetup) -> BatchIndependence:
    """Three passes: two identical ones for the floor, one with row 0 replaced by a row that differs."""
    batch = setup.fresh_batch()
    size = batch_size(batch)
    if size is None or size < 2:
        raise NotExamined("The batch has fewer than two samples, so none can influence another.")
    donor = _row_unlike_the_first(batch, size)
    before, threshold = floor(setup)
    after = evaluate(setup, _replaced(batch, size, donor))
    output, moved = _most_moved(before, after, size)
    pairs = zip(before.outputs[output][1:], after.outputs[output][1:], strict=True)
    return BatchIndependence(
        batch_size=size,
        output=output,
        moved=moved,
        rows_moved=sum(distance(row, other) > threshold for row, other in pairs),
        one_column=_only_column_zero(before.outputs[output], after.outputs[output], size, threshold),
        floor=threshold,
        module=_first_module_to_move(setup, size, donor, threshold) if moved > threshold else "",
    )


def _replaced(batch: Any, size: int, donor: int) -> Any:
    return with_rows(batch, size, lambda _, tensor: torch.cat([tensor[donor][None], tensor[1:]]))


def _row_unlike_the_first(batch: Any, size: int) -> int:
    tensors = [tensor for _, tensor in tensors_in(batch) if tensor.shape[:1] == (size,)]
    for row in range(1, size):
        if any(not torch.equal(tensor[row], tensor[0]) for tensor in tensors):
            return row
    raise NotExamined("All samples of the batch are equal, so replacing one changes nothing.")


def _most_moved(before: Pass, after: Pass, size: int) -> tuple[str, float]:
    moves = {
        path: distance(tensor[1:], after.outputs[path][1:])
        for path, tensor in before.outputs.items()
        if tensor.shape[:1] == (size,) and path in after.outputs
    }
    if not moves:
        raise NotExamined(f"No output of the model has the batch's {size} samples in its first dimension.")
    return max(moves.items(), key=lambda move: move[1])


def _only_column_zero(before: torch.Tensor, after: torch.Tensor, size: int, threshold: float) -> bool:
    square = before.ndim == 2 and before.shape == after.shape == (size, size)
    return square and distance(before[1:, 1:], after[1:, 1:]) <= threshold


def _first_module_to_move(setup: TrainingSetup, size: int, donor: int, threshold: float) -> str:
    """Run two more passes that record the rows of every module's outputs."""
    before, after = _RowRecorder(setup, size), _RowRecorder(setup, size)
    with before:
        evaluate(setup)
    with after:
        evaluate(setup, _replaced(setup.fresh_batch(), size, donor))
    for (path, rows), (_, others) in zip(before.rows, after.rows, strict=False):
        if distance(rows, others) > threshold:
            return path
    return ""


class _RowRecorder:
    """The outputs, of every module, that have one row per sample, in order of execution."""

    def __init__(self, setup: TrainingSetup, size: int) -> None:
        self.size = size
        self.rows: list[tuple[str, torch.Tensor]] = []
        self._calls = ModuleCalls(setup.named_modules, after=self._keep)

    def __enter__(self) -> None:
        self._calls.__enter__()

    def __exit__(self, *_: object) -> None:
        self._calls.remove()

    def _keep(self, path: str, _module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> None:
        for _, tensor in tensors_in(output):
            if tensor.shape[:1] == (self.size,):
                self.rows.append((path, tensor.detach()[1:].clone()))
