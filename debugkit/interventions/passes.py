"""Evaluation passes with equal random draws, and the floor below which their differences are noise."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from debugkit.finding import NotExamined
from debugkit.preserve_state import modules_beside_the_model, same_start
from debugkit.randomness import same_randomness
from debugkit.recorders.module_calls import every_call
from debugkit.setup import TrainingSetup
from debugkit.structure import clone_tensors, map_tensors, tensors_in

RELATIVE_FLOOR = 1e-5
"""Healthy padding and batching move a float32 output by about 1.5e-7 of its size (measured)."""
QUIET = 1e-3
"""Above this difference of two equal passes, the absence of a change is no evidence."""
_ROUNDINGS = 8
_FLOATS = frozenset((torch.bfloat16, torch.float16, torch.float32, torch.float64))
_SEED = 0
_FLOORS: weakref.WeakKeyDictionary[TrainingSetup, tuple[Pass, float]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Pass:
    """The results of one evaluation pass: every tensor that the root module returned, by path, and the loss."""

    outputs: dict[str, torch.Tensor]
    loss: torch.Tensor
    rounding: float = 0.0
    """The coarsest relative rounding error (`finfo.eps`) of any module's output, also under autocast."""
    drawn: bytes = b""
    """torch's random state after the pass; it is equal for two passes that drew equally many numbers."""
    scalars: dict[str, torch.Tensor] = field(default_factory=dict)
    """What the root module returned without a dimension, by path: losses of the batch, also in parts."""


def evaluate(setup: TrainingSetup, batch: Any = None, *, output_needed: bool = True) -> Pass:
    """Compute the loss in eval mode, without gradients, always with the same seed, and keep what the model returned.

    If the model returned only the loss, the output is that of the declared inference or of `model.predict(batch)`.
    Raises NotExamined if neither exists, unless `output_needed` is False.
    """
    kept: dict[str, torch.Tensor] = {}
    scalars: dict[str, torch.Tensor] = {}
    rounding = 0.0
    batch = setup.fresh_batch() if batch is None else batch

    def keep(module: nn.Module, output: Any) -> None:
        nonlocal rounding
        rounding = max([rounding, *(rounding_of(tensor.dtype) for _, tensor in tensors_in(output))])
        if module is setup.model:
            for path, tensor in tensors_in(output):
                (kept if tensor.ndim > 0 else scalars)[path] = tensor.detach().clone()

    with eval_pass(setup, keep):
        loss = setup.loss(clone_tensors(batch)).detach().clone()
        drawn = torch.get_rng_state().numpy().tobytes()
    if not kept and output_needed:
        with same_start(setup), torch.no_grad(), same_randomness(_SEED):
            kept.update(_predicted(setup, clone_tensors(batch)))
    return Pass(kept, loss, rounding, drawn, scalars)


@contextlib.contextmanager
def eval_pass(
    setup: TrainingSetup, see: Callable[[nn.Module, Any], None], *, gradients: bool = False
) -> Iterator[None]:
    """Inside the block, compute in eval mode and always with the same seed. `see(module, output)` gets each call."""
    enter_eval_mode(setup)
    with same_start(setup), every_call(see), torch.set_grad_enabled(gradients), same_randomness(_SEED):
        yield


@contextlib.contextmanager
def output_of_pass(setup: TrainingSetup, *, gradients: bool = False) -> Iterator[dict[str, torch.Tensor]]:
    """The same, and every tensor that the model returns inside the block, by path."""
    kept: dict[str, torch.Tensor] = {}

    def keep(module: nn.Module, output: Any) -> None:
        if module is setup.model:
            kept.update(tensors_in(output))

    with eval_pass(setup, keep, gradients=gradients):
        yield kept


def enter_eval_mode(setup: TrainingSetup) -> None:
    """Eval mode for the model and for the modules that the loss function holds: a teacher in training mode has dropout.

    `preserved` restores the modes.
    """
    for module in (setup.model, *modules_beside_the_model(setup)):
        module.eval()


def _predicted(setup: TrainingSetup, batch: Any) -> dict[str, torch.Tensor]:
    inference = setup.declare.inference
    if inference is None and callable(predict := getattr(setup.model, "predict", None)):
        inference = lambda _model, inputs: predict(inputs)  # noqa: E731 - the signature of a declared inference
    if inference is None:
        raise NotExamined(
            "The model returns no output in addition to the loss: return one, or pass declare=Declare(inference=…)."
        )
    return {path: tensor.detach().clone() for path, tensor in tensors_in(inference(setup.model, batch)) if tensor.ndim}


def floor(setup: TrainingSetup, batch: Any = None, *, output_needed: bool = True) -> tuple[Pass, float]:
    """A pass and its noise floor: ten times the relative difference of an identical pass, and at least 1e-5.

    For the setup's own batch both passes run only once, and all measurements share the result.
    """
    if batch is not None:
        first, second = (evaluate(setup, batch, output_needed=output_needed) for _ in range(2))
        return first, _floor(setup, first, _noise(first, second))
    first, noise = _shared(setup, output_needed)
    return first, _floor(setup, first, noise)


def quiet_floor(setup: TrainingSetup) -> tuple[Pass, float]:
    """`floor()` for a measurement whose result may be that nothing changed.

    Raises NotExamined if two equal passes differ by more than 1e-3: a small change would not be seen among the noise.
    """
    first, noise = _shared(setup, output_needed=False)
    require_quiet(noise)
    return first, _floor(setup, first, noise)


def require_quiet(noise: float) -> None:
    """Raise NotExamined if two equal passes differ by more than 1e-3 of their size."""
    if not noise <= QUIET:
        raise NotExamined(
            f"Two equal passes differ by {noise:.1g} of their size, which would hide the effect of a change."
        )


def require_finite(loss: torch.Tensor) -> None:
    """Raise NotExamined if the loss is NaN or infinite: it stays so, whatever changes."""
    if not bool(loss.isfinite().all()):
        raise NotExamined("The loss is not finite, so no change of it can be measured: fix that first.")


def _shared(setup: TrainingSetup, output_needed: bool) -> tuple[Pass, float]:
    """The first of two equal passes over the setup's own batch, and the difference between them."""
    known = _FLOORS.get(setup)
    if known is None or (output_needed and not known[0].outputs):
        first, second = (evaluate(setup, output_needed=output_needed) for _ in range(2))
        known = _FLOORS[setup] = first, _noise(first, second)
    return known


def _noise(first: Pass, second: Pass) -> float:
    """The largest relative difference of two passes."""
    moves = [distance(tensor, second.outputs[path]) for path, tensor in first.outputs.items() if path in second.outputs]
    return max([*moves, distance(first.loss, second.loss)])


def _floor(setup: TrainingSetup, ran: Pass, noise: float) -> float:
    return max(10 * noise, minimal_floor(setup.model), floor_of_rounding(ran.rounding))


def minimal_floor(model: torch.nn.Module) -> float:
    """1e-5, or eight rounding errors of the coarsest floating dtype of the parameters: 6e-2 for a model in bfloat16."""
    return floor_of_rounding(max((rounding_of(parameter.dtype) for parameter in model.parameters()), default=0.0))


def floor_of_rounding(rounding: float) -> float:
    """The floor for values that are computed with this relative rounding error."""
    return max(RELATIVE_FLOOR, _ROUNDINGS * rounding)


def rounding_of(dtype: torch.dtype) -> float:
    """`finfo.eps` of a dtype that models compute in, and 0 for any other."""
    return torch.finfo(dtype).eps if dtype in _FLOATS else 0.0


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest absolute difference, divided by the largest finite absolute value; inf if the shapes differ.

    Two NaNs, or two equal infinities, at the same position count as equal.
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


def outputs_differ(
    before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor], threshold: float
) -> bool | None:
    """Whether an output differs by more than the threshold, losses apart; None if the passes share no output."""
    shared = [path for path in before if path in after and path.rpartition(".")[2] != "loss"]
    return any(distance(before[path], after[path]) > threshold for path in shared) if shared else None


def with_rows(batch: Any, size: int, change: Any) -> Any:
    """The batch with `change(path, tensor)` for each tensor whose first dimension is the batch."""
    return map_tensors(batch, lambda path, tensor: change(path, tensor) if tensor.shape[:1] == (size,) else tensor)
