"""Compute the gradient of the whole batch and in micro-batches, in float64, where both must agree."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from debugkit.finding import NotExamined
from debugkit.interventions.passes import enter_eval_mode, minimal_floor
from debugkit.preserve_state import preserved
from debugkit.randomness import same_randomness
from debugkit.rules.dk507_accumulation_scale import AccumulatedGradient
from debugkit.setup import TrainingSetup
from debugkit.structure import batch_size, map_tensors

_DOUBLE_FLOOR = 1e-7
Gradient = dict[str, torch.Tensor]


def split_the_batch(setup: TrainingSetup) -> AccumulatedGradient:
    """Run forward and backward of the batch and of each part, in eval mode: dropout and batch statistics are off."""
    parts, size = setup.declare.accumulation, batch_size(setup.batch)
    if parts is None:
        raise NotExamined("No accumulation was declared: pass declare=Declare(accumulation=…) if the loop accumulates.")
    if parts < 2 or size is None or size < parts:
        raise NotExamined(f"A batch of {size} samples cannot be split into {parts} micro-batches.")
    try:
        with preserved(setup):
            setup.model.double()
            return _compared(setup, parts, size, double=True)
    except NotExamined:
        raise
    except Exception:  # the model has a dtype hard-coded, so it does not run in float64
        with preserved(setup):
            return _compared(setup, parts, size, double=False)


def _compared(setup: TrainingSetup, parts: int, size: int, double: bool) -> AccumulatedGradient:
    enter_eval_mode(setup)
    bounds = [round(i * size / parts) for i in range(parts + 1)]
    whole = _gradient(setup, _rows(setup.batch, size, 0, size, double))
    added: Gradient = {}
    for begin, end in itertools.pairwise(bounds):
        for name, gradient in _gradient(setup, _rows(setup.batch, size, begin, end, double)).items():
            added[name] = added[name] + gradient / parts if name in added else gradient / parts
    names = sorted(whole.keys() | added.keys())
    one, other = (torch.cat([_flat(side, name, whole, added) for name in names]) for side in (whole, added))
    norm = float(one.norm())
    if not torch.isfinite(one).all() or norm == 0.0:
        raise NotExamined("The gradient of the batch is zero or not finite.")
    apart = {
        name: float((_flat(whole, name, whole, added) - _flat(added, name, whole, added)).norm()) for name in names
    }
    return AccumulatedGradient(
        parts=parts,
        cosine=float(torch.dot(one, other) / (one.norm() * other.norm()).clamp_min(1e-300)),
        ratio=float(other.norm()) / norm,
        difference=float((one - other).norm()) / norm,
        floor=_DOUBLE_FLOOR if double else 10 * minimal_floor(setup.model),
        double=double,
        parameter=max(apart, key=lambda name: apart[name]),
    )


def _rows(batch: Any, size: int, begin: int, end: int, double: bool) -> Any:
    def change(_: str, tensor: torch.Tensor) -> torch.Tensor:
        part = tensor[begin:end] if tensor.shape[:1] == (size,) else tensor
        return part.double() if double and part.is_floating_point() else part.clone()

    return map_tensors(batch, change)


def _gradient(setup: TrainingSetup, batch: Any) -> Gradient:
    for parameter in setup.model.parameters():
        parameter.grad = None
    with same_randomness(0):
        before = torch.get_rng_state()
        loss = setup.loss(batch)
        if not torch.equal(before, torch.get_rng_state()):
            raise NotExamined("The loss draws random numbers in eval mode, so parts and whole cannot be compared.")
    loss.backward()  # type: ignore[no-untyped-call]
    return {
        name: parameter.grad.to_dense().detach().double().reshape(-1).clone()
        for name, parameter in setup.model.named_parameters()
        if parameter.grad is not None
    }


def _flat(side: Gradient, name: str, whole: Gradient, added: Gradient) -> torch.Tensor:
    """Zeros if only the other side has a gradient, for example for an expert that a part did not use."""
    return side[name] if name in side else torch.zeros_like(whole[name] if name in whole else added[name])
