"""Replaces sample 0 of the batch by another one. In eval mode the rows of all other samples must not change.

If they do not, the samples are put in another order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from debugkit.finding import NotExamined, SourceLine
from debugkit.interventions.passes import Pass, distance, evaluate, floor, minimal_floor, with_rows
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.rules.dk305_batch_leak import BatchIndependence
from debugkit.rules.dk305_batch_leak.order import source_by_row
from debugkit.rules.dk305_batch_leak.row_recorder import RowRecorder
from debugkit.setup import TrainingSetup
from debugkit.structure import batch_size, tensors_in

_NUDGES = (1e-4, 1e-5)
"""Relative to the largest value of the sample. A token near the border of two experts may change between them."""


def replace_sample_zero(setup: TrainingSetup) -> BatchIndependence:
    """Two identical passes for the floor, one with row 0 replaced by a row that differs, and one in another order."""
    batch = setup.fresh_batch()
    size = batch_size(batch)
    if size is None or size < 2:
        raise NotExamined("The batch has fewer than two samples, so none can influence another.")
    donor = _row_unlike_the_first(batch, size)
    before, threshold = floor(setup)
    after = evaluate(setup, _replaced(batch, size, donor))
    output, moved = _most_moved(before, after, size)
    if moved <= threshold:
        source = source_by_row(setup, size, before, after, threshold)
        return BatchIndependence(size, output, moved, 0, False, threshold, "", source=source)
    fewer = _with_one_fewer(setup, size)
    if fewer is None and (graph := _is_a_graph(setup, size)) is not None:
        raise NotExamined(f"The samples are the nodes of a graph: `{graph}` has a row and a column for each.")
    try:
        output, moved = _most_moved(_with_a_row_per_sample(before, fewer, size), after, size)
    except NotExamined:  # the sizes were equal by chance
        return BatchIndependence(size, output, 0.0, 0, False, threshold, "")
    pairs = zip(before.outputs[output][1:], after.outputs[output][1:], strict=True)
    where = _first_module_to_move(setup, size, donor, threshold)
    if where.related:
        raise NotExamined("The samples are the nodes of a graph: given indices, or a given matrix, relate their rows.")
    return BatchIndependence(
        batch_size=size,
        output=output,
        moved=moved,
        rows_moved=sum(distance(row, other) > threshold for row, other in pairs),
        pairwise=_is_pairwise(before, after, fewer, output, threshold),
        floor=threshold,
        module=where.module,
        one_fewer=fewer is not None,
        by_a_router=where.routed and not _moved_by_a_small_change(setup, size, before, threshold),
        at=where.line,
        mixed_before=where.in_the_inputs,
    )


def _with_one_fewer(setup: TrainingSetup, size: int) -> Pass | None:
    """The batch without its last sample; None if the model does not run with fewer samples."""
    try:
        return evaluate(setup, with_rows(setup.fresh_batch(), size, lambda _, tensor: tensor[:-1]))
    except Exception:
        return None


def _is_a_graph(setup: TrainingSetup, size: int) -> str | None:
    """The entry that relates each sample to each, such as an adjacency matrix; None if there is none.

    The model does not run if samples are left out as rows alone, and runs if they are left out as columns there, too.
    """
    square = [path for path, tensor in tensors_in(setup.batch) if tensor.shape == (size, size)]
    batch = with_rows(
        setup.fresh_batch(), size, lambda path, tensor: tensor[:-1, :-1] if path in square else tensor[:-1]
    )
    try:
        evaluate(setup, batch)
    except Exception:
        return None
    return square[0] if square else None


def _with_a_row_per_sample(before: Pass, fewer: Pass | None, size: int) -> Pass:
    """The outputs that have one row fewer if the batch has one sample fewer."""
    if fewer is None:
        return before
    shorter = {path for path, tensor in fewer.outputs.items() if tensor.shape[:1] == (size - 1,)}
    return Pass({path: tensor for path, tensor in before.outputs.items() if path in shorter}, before.loss)


def _moved_by_a_small_change(setup: TrainingSetup, size: int, before: Pass, threshold: float) -> bool:
    """Whether other rows move if row 0 changes by little, or if only its masks are those of another sample.

    What is chosen by comparison, such as the experts of a token, stays the same under a small change.
    """
    exact = threshold <= minimal_floor(setup.model)  # two equal passes agree, so a mean over many rows is seen too
    limit = threshold / 100 if exact else threshold
    nudged = (_most_moved(before, _nudged(setup, size, nudge), size)[1] > limit for nudge in _NUDGES)
    return all(nudged) or _most_moved(before, _with_other_masks(setup, size), size)[1] > threshold


def _nudged(setup: TrainingSetup, size: int, nudge: float) -> Pass:
    def change(_: str, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_floating_point():
            tensor[0] += nudge * tensor[0].abs().amax()
        return tensor

    def embedded(_path: str, _module: nn.Module, _args: Any, _kwargs: Any, output: torch.Tensor) -> torch.Tensor:
        return change("", output.clone()) if output.shape[:1] == (size,) else output

    embeddings = [(path, module) for path, module in setup.named_modules if isinstance(module, nn.Embedding)]
    with ModuleCalls(embeddings, after=embedded):
        return evaluate(setup, with_rows(setup.fresh_batch(), size, change))


def _with_other_masks(setup: TrainingSetup, size: int) -> Pass:
    def change(_: str, tensor: torch.Tensor) -> torch.Tensor:
        is_mask = tensor.ndim > 1 and bool(((tensor == 0) | (tensor == 1)).all())
        return torch.cat([tensor[1:2], tensor[1:]]) if is_mask else tensor

    return evaluate(setup, with_rows(setup.fresh_batch(), size, change))


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


def _is_pairwise(before: Pass, after: Pass, fewer: Pass | None, output: str, threshold: float) -> bool:
    """Whether an output compares each sample with each: a (B, B) matrix for any B, or one of which column 0 moved."""
    one, other = before.outputs[output], after.outputs[output]
    size = len(one)
    if one.shape != (size, size) or one.shape != other.shape:
        return False
    if fewer is not None:
        return fewer.outputs[output].shape == (size - 1, size - 1)
    return distance(one[1:, 1:], other[1:, 1:]) <= threshold


@dataclass(frozen=True)
class _Place:
    module: str
    """The first module one of whose outputs moved."""
    routed: bool
    """Whether entries of a list of modules got a part of the rows that the list's owner got."""
    in_the_inputs: bool
    """Whether the inputs of the first module that ran moved already."""
    related: bool
    """Whether rows were taken or added by indices that the passes did not compute, or multiplied by such a matrix."""
    line: SourceLine | None
    """The program's line of the first operation that moved."""


def _first_module_to_move(setup: TrainingSetup, size: int, donor: int, threshold: float) -> _Place:
    """Run two more passes that record the rows of every module's inputs and outputs."""
    before, after = RowRecorder(setup, size), RowRecorder(setup, size)
    own, other = setup.fresh_batch(), _replaced(setup.fresh_batch(), size, donor)
    with before:
        evaluate(setup, own)
    with after:
        evaluate(setup, other)
    moved = (
        path
        for (path, rows), (_, others) in zip(before.rows, after.rows, strict=False)
        if distance(rows, others) > threshold
    )
    inputs = zip(before.inputs, after.inputs, strict=False)
    return _Place(
        module=next(moved, ""),
        routed=after.routed,
        in_the_inputs=any(distance(rows, others) > threshold for rows, others in inputs),
        related=after.related,
        line=_first_line_to_move(before, after, threshold),
    )


def _first_line_to_move(before: RowRecorder, after: RowRecorder, threshold: float) -> SourceLine | None:
    for (name, line, rows), (other_name, _, others) in zip(before.operations, after.operations, strict=False):
        if name != other_name:
            return None  # the two passes took different paths
        if distance(rows, others) > threshold:
            return line
    return None
