"""Compute the gradient of the batch as a whole and in micro-batches, in float64, where both must agree."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from debugkit.experiments import experiment
from debugkit.experiments.passes import minimal_floor
from debugkit.finding import NotExamined
from debugkit.observations.accumulated_gradient import AccumulatedGradient
from debugkit.restore import restored, same_randomness
from debugkit.structure import batch_size, map_tensors
from debugkit.subject import Subject

_DOUBLE_FLOOR = 1e-7
Gradient = dict[str, torch.Tensor]


@experiment(AccumulatedGradient, cost=0, requires=("batch",))  # of the budget: only who declares it pays six passes
def split_the_batch(subject: Subject) -> AccumulatedGradient:
    """A forward and backward of the batch, and one of each part, in eval mode: dropout and batch statistics are off."""
    parts, size = subject.declare.accumulation, batch_size(subject.batch)
    if parts is None:
        raise NotExamined("No accumulation was declared: say declare=Declare(accumulation=…) if the loop accumulates.")
    if parts < 2 or size is None or size < parts:
        raise NotExamined(f"A batch of {size} samples cannot be split into {parts} micro-batches.")
    try:
        with restored(subject):
            subject.model.double()
            return _compared(subject, parts, size, double=True)
    except NotExamined:
        raise
    except Exception:  # a model with a type written into its code
        with restored(subject):
            return _compared(subject, parts, size, double=False)


def _compared(subject: Subject, parts: int, size: int, double: bool) -> AccumulatedGradient:
    subject.model.eval()
    bounds = [round(i * size / parts) for i in range(parts + 1)]
    whole = _gradient(subject, _rows(subject.batch, size, 0, size, double))
    added: Gradient = {}
    for begin, end in itertools.pairwise(bounds):
        for name, gradient in _gradient(subject, _rows(subject.batch, size, begin, end, double)).items():
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
        floor=_DOUBLE_FLOOR if double else 10 * minimal_floor(subject.model),
        double=double,
        parameter=max(apart, key=lambda name: apart[name]),
    )


def _rows(batch: Any, size: int, begin: int, end: int, double: bool) -> Any:
    def change(_: str, tensor: torch.Tensor) -> torch.Tensor:
        part = tensor[begin:end] if tensor.shape[:1] == (size,) else tensor
        return part.double() if double and part.is_floating_point() else part.clone()

    return map_tensors(batch, change)


def _gradient(subject: Subject, batch: Any) -> Gradient:
    for parameter in subject.model.parameters():
        parameter.grad = None
    with same_randomness(0):
        before = torch.get_rng_state()
        loss = subject.loss(batch)
        if not torch.equal(before, torch.get_rng_state()):
            raise NotExamined("The loss draws random numbers in eval mode, other ones for a part than for the whole.")
    loss.backward()  # type: ignore[no-untyped-call]
    return {
        name: parameter.grad.to_dense().detach().double().reshape(-1).clone()
        for name, parameter in subject.model.named_parameters()
        if parameter.grad is not None
    }


def _flat(side: Gradient, name: str, whole: Gradient, added: Gradient) -> torch.Tensor:
    """Zeros where only the other side has a gradient, as of an expert that a part did not route to."""
    return side[name] if name in side else torch.zeros_like(whole[name] if name in whole else added[name])
