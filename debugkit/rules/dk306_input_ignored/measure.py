"""Exchanges one input among the samples of the batch. If nothing changes, the model ignores it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import torch

from debugkit.finding import NotExamined
from debugkit.interventions.batch_roles import BESIDE_TEXT, modalities
from debugkit.interventions.passes import Pass, distance, evaluate, quiet_floor, require_finite, rounding_of
from debugkit.interventions.zero_gates import open_gates
from debugkit.rules.dk306_input_ignored import ModalityEffect, ModalityEffects
from debugkit.setup import TrainingSetup
from debugkit.structure import batch_size, map_tensors, tensors_in

_IN_32_BITS = 1e-6
_TARGET = re.compile(r"(^|[._])(targets?|outputs?|ground_truth|gt)([._]|$)")
MOST = 4
"""The number of inputs tried without a declaration. Each costs a pass."""


def shuffle_a_modality(setup: TrainingSetup) -> ModalityEffects:
    """One pass for each input in addition to the shared ones, and two more for an input that seems to be ignored."""
    size = batch_size(setup.batch)
    if size is None or size < 2:
        raise NotExamined("The batch has fewer than two samples, so nothing can be exchanged between them.")
    chosen = modalities(setup)
    unnamed = _only_input(setup) if not chosen else {}
    chosen = chosen or unnamed
    if not chosen:
        raise NotExamined("No input is recognised by its name: pass declare=Declare(modalities=(…)).")
    missing = [name for name, paths in chosen.items() if not paths]
    if missing:
        raise NotExamined(f"The batch has no entry {missing[0]!r}, a declared modality, with a row per sample.")
    tensors = dict(tensors_in(setup.batch))
    equal = tuple(name for name, paths in chosen.items() if all(_rows_equal(tensors[path]) for path in paths))
    tried = [name for name in chosen if name not in equal][: None if setup.declare.modalities else MOST]
    if not tried:
        raise NotExamined("All samples of the batch have the same inputs, so exchanging them changes nothing.")
    before, threshold = quiet_floor(setup)
    require_finite(before.loss)
    if unnamed and not any(bool(output.any()) for output in before.outputs.values()):
        raise NotExamined("The model's output has no number other than 0 that its input could change.")
    effects = []
    for name in tried:
        moved = _difference(setup, before, _shuffled(setup, chosen[name]))
        reopened = None
        if moved <= threshold and not setup.knows_loss and _may_be_a_target(setup, chosen[name], before):
            continue
        if moved <= threshold:
            with open_gates(setup.model):
                opened = _shuffled(setup, (), opened=True)
                reopened = _difference(setup, opened, _shuffled(setup, chosen[name], opened=True))
        declared = name in setup.declare.modalities
        effects.append(ModalityEffect(name, chosen[name], moved, reopened, declared))
    if not effects:
        raise NotExamined(
            "How the loss is computed is not known, and each input that changes nothing may be its target."
        )
    rounded = max(before.rounding, *(rounding_of(p.dtype) for p in setup.model.parameters()), 0.0) > _IN_32_BITS
    return ModalityEffects(tuple(effects), equal, threshold, rounded)


def _only_input(setup: TrainingSetup) -> dict[str, tuple[str, ...]]:
    """The one tensor that the model is called with, whatever its name, where the batch has no targets in it."""
    tensors = list(tensors_in(setup.batch))
    if setup.knows_loss or setup.declare.modalities or len(tensors) != 1:
        return {}
    path, tensor = tensors[0]
    return {path: (path,)} if tensor.is_floating_point() and tensor.ndim > 1 else {}


def _rows_equal(tensor: torch.Tensor) -> bool:
    return bool(((tensor == tensor[:1]) | (tensor != tensor)).all())


def _shuffled(setup: TrainingSetup, paths: tuple[str, ...], opened: bool = False) -> Pass:
    """A pass with the rows of these inputs shifted by one, or by more if neighbouring rows are equal."""
    tensors = dict(tensors_in(setup.batch))
    shift = _shift([tensors[path] for path in paths])

    def change(path: str, tensor: torch.Tensor) -> torch.Tensor:
        if path in paths:
            return tensor.roll(shift, dims=0)
        is_gate = opened and tensor.dtype is torch.bool and tensor.ndim == 1
        return torch.ones_like(tensor) if is_gate else tensor

    return evaluate(setup, map_tensors(setup.fresh_batch(), change), output_needed=False)


def _shift(tensors: list[torch.Tensor]) -> int:
    """The shift that gives most rows a different one."""
    if not tensors:
        return 0
    size = len(tensors[0])

    def changed(shift: int) -> int:
        moved = torch.zeros(size, dtype=torch.bool)
        for tensor in tensors:
            moved |= (
                (tensor != tensor.roll(shift, dims=0)).flatten(1).any(1).cpu()
                if tensor.ndim > 1
                else (tensor != tensor.roll(shift, dims=0)).cpu()
            )
        return int(moved.sum())

    return max(range(1, min(size, 8)), key=changed, default=1)


def _difference(setup: TrainingSetup, before: Pass, after: Pass) -> float:
    """The largest change of an output or of the loss, or of what may be a part of the loss if it is not known."""
    pairs = [(before.outputs, after.outputs), *([] if setup.knows_loss else [(before.scalars, after.scalars)])]
    moves = [distance(tensor, new[path]) for old, new in pairs for path, tensor in old.items() if path in new]
    return max([*moves, distance(before.loss, after.loss)])


def _may_be_a_target(setup: TrainingSetup, paths: tuple[str, ...], before: Pass) -> bool:
    """Whether a loss that is not known may compare an input with an output.

    The program uses it outside the model too, or it is called a target, or it is an entry of a whole batch that the
    model was given and has the shape of an output, with or without the dimension of the classes.
    """
    tensors = dict(tensors_in(setup.batch))
    shapes = {shape for output in before.outputs.values() for shape in _shapes_of_targets(output)}
    arguments = inspect.signature(setup.model.forward).parameters
    return any(
        path in setup.used_outside
        or _TARGET.search(path.lower()) is not None
        or (path not in arguments and tensors[path].shape in shapes)
        for path in paths
        if path.rpartition(".")[2] not in BESIDE_TEXT
    )


def _shapes_of_targets(output: torch.Tensor) -> Iterator[torch.Size]:
    """The shapes of what a loss compares with an output: its own, or that of one class for each row of scores."""
    yield output.shape
    if output.ndim > 1:
        yield output.shape[:-1]
        yield torch.Size([*output.shape[:1], *output.shape[2:]])
