"""Replace sample 0 of the batch by another one: in eval mode the rows of all others must not move."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from debugkit.experiments import experiment
from debugkit.experiments.passes import Pass, distance, evaluate, floor, with_rows
from debugkit.finding import NotExamined
from debugkit.observations.batch_independence import BatchIndependence
from debugkit.structure import batch_size, tensors_in
from debugkit.subject import Subject


@experiment(BatchIndependence, cost=3, requires=("batch",))
def replace_sample_zero(subject: Subject) -> BatchIndependence:
    """Three passes: two identical ones for the floor, one with row 0 replaced by a row that differs."""
    batch = subject.fresh_batch()
    size = batch_size(batch)
    if size is None or size < 2:
        raise NotExamined("The batch has fewer than two samples, so none can influence another.")
    donor = _row_unlike_the_first(batch, size)
    before, threshold = floor(subject)
    after = evaluate(subject, _replaced(batch, size, donor))
    output, moved = _most_moved(before, after, size)
    pairs = zip(before.outputs[output][1:], after.outputs[output][1:], strict=True)
    return BatchIndependence(
        batch_size=size,
        output=output,
        moved=moved,
        rows_moved=sum(distance(row, other) > threshold for row, other in pairs),
        one_column=_only_column_zero(before.outputs[output], after.outputs[output], size, threshold),
        floor=threshold,
        module=_first_module_to_move(subject, size, donor, threshold) if moved > threshold else "",
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


def _first_module_to_move(subject: Subject, size: int, donor: int, threshold: float) -> str:
    """Two more passes, only on a hit: every module's rows are held for a moment."""
    before, after = _RowRecorder(subject, size), _RowRecorder(subject, size)
    with before:
        evaluate(subject)
    with after:
        evaluate(subject, _replaced(subject.fresh_batch(), size, donor))
    for (path, rows), (_, others) in zip(before.rows, after.rows, strict=False):
        if distance(rows, others) > threshold:
            return path
    return ""


class _RowRecorder:
    """Outputs of every module that have one row per sample, in order of execution."""

    def __init__(self, subject: Subject, size: int) -> None:
        self.subject, self.size = subject, size
        self.rows: list[tuple[str, torch.Tensor]] = []

    def __enter__(self) -> None:
        self.handles = [
            module.register_forward_hook(self._keep(path))
            for module, path in self.subject.module_paths.items()
            if not isinstance(module, torch.jit.ScriptModule)
        ]

    def __exit__(self, *_: object) -> None:
        for handle in self.handles:
            handle.remove()

    def _keep(self, path: str) -> Callable[[nn.Module, Any, Any], None]:
        def keep(_module: nn.Module, _inputs: Any, output: Any) -> None:
            for _, tensor in tensors_in(output):
                if tensor.shape[:1] == (self.size,):
                    self.rows.append((path, tensor.detach()[1:].clone()))

        return keep
