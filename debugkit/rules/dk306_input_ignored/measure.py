"""Exchanges one input among the samples of the batch. If nothing changes, the model ignores it."""

from __future__ import annotations

import torch

from debugkit.finding import NotExamined
from debugkit.interventions.batch_roles import modalities
from debugkit.interventions.passes import Pass, distance, evaluate, quiet_floor, require_finite, rounding_of
from debugkit.interventions.zero_gates import open_gates
from debugkit.rules.dk306_input_ignored import ModalityEffect, ModalityEffects
from debugkit.setup import TrainingSetup
from debugkit.structure import batch_size, map_tensors, tensors_in

_IN_32_BITS = 1e-6
MOST = 4
"""The number of inputs tried without a declaration. Each costs a pass."""


def shuffle_a_modality(setup: TrainingSetup) -> ModalityEffects:
    """One pass for each input in addition to the shared ones, and two more for an input that seems to be ignored."""
    size = batch_size(setup.batch)
    if size is None or size < 2:
        raise NotExamined("The batch has fewer than two samples, so nothing can be exchanged between them.")
    chosen = modalities(setup)
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
    effects = []
    for name in tried:
        moved = _difference(before, _shuffled(setup, chosen[name]))
        reopened = None
        if moved <= threshold:
            with open_gates(setup.model):
                reopened = _difference(_shuffled(setup, (), opened=True), _shuffled(setup, chosen[name], opened=True))
        declared = name in setup.declare.modalities
        effects.append(ModalityEffect(name, chosen[name], moved, reopened, declared))
    rounded = max(before.rounding, *(rounding_of(p.dtype) for p in setup.model.parameters()), 0.0) > _IN_32_BITS
    return ModalityEffects(tuple(effects), equal, threshold, rounded)


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


def _difference(before: Pass, after: Pass) -> float:
    moves = [distance(tensor, after.outputs[path]) for path, tensor in before.outputs.items() if path in after.outputs]
    return max([*moves, distance(before.loss, after.loss)])
