"""Exchange one input among the samples of the batch: where nothing moves, nothing reads it."""

from __future__ import annotations

import torch

from debugkit.batch_roles import modalities
from debugkit.experiments import experiment
from debugkit.experiments.passes import Pass, distance, evaluate, floor
from debugkit.experiments.zero_gates import open_gates
from debugkit.finding import NotExamined
from debugkit.observations.modalities import ModalityEffect, ModalityEffects
from debugkit.structure import batch_size, map_tensors, tensors_in
from debugkit.subject import Subject

MOST = 4
"""Inputs tried without a declaration: each costs a pass."""


@experiment(ModalityEffects, cost=4, requires=("batch",))
def shuffle_a_modality(subject: Subject) -> ModalityEffects:
    """One pass for each input, beside the shared ones; two more for one that seems to be ignored."""
    size = batch_size(subject.batch)
    if size is None or size < 2:
        raise NotExamined("The batch has fewer than two samples, so nothing can be exchanged among them.")
    chosen = modalities(subject)
    if not chosen:
        raise NotExamined("No input is known by name: say declare=Declare(modalities=(…)).")
    missing = [name for name, paths in chosen.items() if not paths]
    if missing:
        raise NotExamined(f"The declared modality {missing[0]!r} is no entry of the batch with a row per sample.")
    tensors = dict(tensors_in(subject.batch))
    equal = tuple(name for name, paths in chosen.items() if all(_rows_equal(tensors[path]) for path in paths))
    tried = [name for name in chosen if name not in equal][: None if subject.declare.modalities else MOST]
    if not tried:
        raise NotExamined("All samples of the batch have the same inputs, so exchanging them changes nothing.")
    before, threshold = floor(subject, output_needed=False)
    if not bool(before.loss.isfinite().all()):
        raise NotExamined("The loss is not finite, and nothing moves it: see what makes it so first.")
    effects = []
    for name in tried:
        moved = _difference(before, _shuffled(subject, chosen[name]))
        reopened = None
        if moved <= threshold:
            with open_gates(subject.model):
                reopened = _difference(
                    _shuffled(subject, (), opened=True), _shuffled(subject, chosen[name], opened=True)
                )
        declared = name in subject.declare.modalities
        effects.append(ModalityEffect(name, chosen[name], moved, reopened, declared))
    rounded = any(p.dtype in (torch.float16, torch.bfloat16) for p in subject.model.parameters())
    return ModalityEffects(tuple(effects), equal, threshold, rounded)


def _rows_equal(tensor: torch.Tensor) -> bool:
    return bool(((tensor == tensor[:1]) | (tensor != tensor)).all())


def _shuffled(subject: Subject, paths: tuple[str, ...], opened: bool = False) -> Pass:
    """A pass with the rows of these inputs moved on by one, or by more where neighbours are equal."""
    tensors = dict(tensors_in(subject.batch))
    shift = _shift([tensors[path] for path in paths])

    def change(path: str, tensor: torch.Tensor) -> torch.Tensor:
        if path in paths:
            return tensor.roll(shift, dims=0)
        is_gate = opened and tensor.dtype is torch.bool and tensor.ndim == 1
        return torch.ones_like(tensor) if is_gate else tensor

    return evaluate(subject, map_tensors(subject.fresh_batch(), change), output_needed=False)


def _shift(tensors: list[torch.Tensor]) -> int:
    """The distance at which most rows meet one that differs."""
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
