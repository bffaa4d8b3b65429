"""Evaluation passes that draw alike, and how far two of them may differ before the difference says something."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook

from debugkit.finding import NotExamined
from debugkit.restore import same_randomness
from debugkit.structure import clone_tensors, map_tensors, tensors_in
from debugkit.subject import Subject

RELATIVE_FLOOR = 1e-5
"""Healthy padding and batching move a float32 output by about 1.5e-7 of its size (measured)."""
_SEED = 0
_FLOORS: weakref.WeakKeyDictionary[Subject, tuple[Pass, float]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Pass:
    """What one evaluation pass gave: every tensor the root module returned, by path, and the loss."""

    outputs: dict[str, torch.Tensor]
    loss: torch.Tensor
    drawn: bytes = b""
    """torch's random state after the pass: equal in two passes that drew equally many numbers."""


def evaluate(subject: Subject, batch: Any = None, *, output_needed: bool = True) -> Pass:
    """Run the loss in eval mode, without gradients, with the same draws every time, and keep what the model returned.

    Where it returned the loss alone, the output is what inference gives: the declared one, or `model.predict(batch)`.
    Raises NotExamined if there is none either, so that there is no output to compare; not with `output_needed=False`.
    """
    kept: dict[str, torch.Tensor] = {}
    batch = subject.fresh_batch() if batch is None else batch

    def keep(module: object, _inputs: object, output: object) -> None:
        if module is subject.model:
            kept.update((path, tensor.detach().clone()) for path, tensor in tensors_in(output) if tensor.ndim > 0)

    subject.model.eval()
    handle = register_module_forward_hook(keep)  # the global one, as scripted modules take no hook of their own
    try:
        with torch.no_grad(), same_randomness(_SEED):
            loss = subject.loss(clone_tensors(batch)).detach().clone()
            drawn = torch.get_rng_state().numpy().tobytes()
    finally:
        handle.remove()
    if not kept and output_needed:
        with torch.no_grad(), same_randomness(_SEED):
            kept.update(_predicted(subject, clone_tensors(batch)))
    return Pass(kept, loss, drawn)


def _predicted(subject: Subject, batch: Any) -> dict[str, torch.Tensor]:
    inference = subject.declare.inference
    if inference is None and callable(predict := getattr(subject.model, "predict", None)):
        inference = lambda _model, inputs: predict(inputs)  # noqa: E731 - the same form as a declared one
    if inference is None:
        raise NotExamined("The model shows no output beside the loss: return it, or use declare=Declare(inference=…).")
    return {
        path: tensor.detach().clone() for path, tensor in tensors_in(inference(subject.model, batch)) if tensor.ndim
    }


def floor(subject: Subject, batch: Any = None, *, output_needed: bool = True) -> tuple[Pass, float]:
    """A pass, and the relative difference below which nothing is said: ten times that of an identical pass, or 1e-5.

    For the subject's own batch this is computed once, however many experiments ask: two passes for all of them.
    """
    if batch is not None:
        first, second = (evaluate(subject, batch, output_needed=output_needed) for _ in range(2))
        return first, floor_between(subject, first, second)
    known = _FLOORS.get(subject)
    if known is None or (output_needed and not known[0].outputs):
        first, second = (evaluate(subject, output_needed=output_needed) for _ in range(2))
        known = _FLOORS[subject] = first, floor_between(subject, first, second)
    return known


def floor_between(subject: Subject, first: Pass, second: Pass) -> float:
    """The floor that two identical passes show: for an experiment that needs one of them for itself."""
    noise = max((distance(tensor, second.outputs[path]) for path, tensor in first.outputs.items()), default=0.0)
    noise = max(noise, distance(first.loss, second.loss))
    return max(10 * noise, minimal_floor(subject.model))


def minimal_floor(model: torch.nn.Module) -> float:
    """1e-5, or four roundings of the coarsest floating type among the parameters: 3e-2 for a model in bfloat16."""
    kinds = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    kinds &= {torch.bfloat16, torch.float16, torch.float32, torch.float64}
    return max(RELATIVE_FLOOR, 4 * max((torch.finfo(kind).eps for kind in kinds), default=0.0))


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """Largest absolute difference over the largest finite absolute value of either; inf where shapes differ.

    Two values that are NaN, or the same infinity, at the same place are equal.
    """
    if one.shape != other.shape:
        return float("inf")
    if one.numel() == 0:
        return 0.0
    one, other = one.detach().to(torch.float64), other.detach().to(torch.float64)
    same = (one == other) | (one.isnan() & other.isnan())
    both = torch.stack([one, other])
    scale = both[both.isfinite()].abs().max().item() if both.isfinite().any() else 0.0
    gap = torch.where(same, 0.0, (one - other).abs())
    if not gap.isfinite().all():
        return float("inf")
    return float(gap.max().item() / scale) if scale > 0 else 0.0


def with_rows(batch: Any, size: int, change: Any) -> Any:
    """The batch with `change(path, tensor)` for each tensor whose first dimension is the batch."""
    return map_tensors(batch, lambda path, tensor: change(path, tensor) if tensor.shape[:1] == (size,) else tensor)
