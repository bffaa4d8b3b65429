"""Records the operands of each loss, for loss functions and for hand-written differences, with the source line.

A hand-written difference counts as a loss if only elementwise operations (`** 2`, `abs`, a mask) and reductions follow,
up to a scalar that requires a gradient. A relative position or a metric does not end in such a scalar.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, MutableMapping, Sequence
from types import FrameType
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from debugkit.finding import SourceLine
from debugkit.frames import is_users, user_line
from debugkit.recorders.function_calls import FunctionObserver, property_read_by
from debugkit.recorders.function_probe import FunctionProbe
from debugkit.rules.dk002_silent_broadcast import Comparison, LossOperands
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in

_LOSSES = frozenset({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "poisson_nll_loss"})
"""torch's loss functions that broadcast. The others raise if the shapes do not match."""
_DIFFERENCES = frozenset({"sub", "__sub__", "__rsub__", "rsub", "subtract", "__isub__", "sub_"})
_ELEMENTWISE = frozenset(
    {"pow", "__pow__", "square", "abs", "absolute", "__abs__", "neg", "__neg__", "sqrt", "exp", "log", "log1p", "cosh"}
    | {"tanh", "sigmoid", "logsigmoid", "softplus", "relu", "clamp", "clip", "where", "masked_fill", "nan_to_num"}
    | {"mul", "__mul__", "__rmul__", "multiply", "div", "__truediv__", "divide", "true_divide", "add", "__add__"}
    | {"__radd__", "minimum", "maximum", "float", "to", "type_as"}
    | _DIFFERENCES
)
_REDUCTIONS = frozenset({"mean", "sum", "nanmean", "nansum", "norm", "vector_norm", "flatten", "reshape", "view"})
_Weak = MutableMapping[torch.Tensor, Any]
_NEW_AXIS = frozenset({"unsqueeze", "__getitem__", "expand", "expand_as", "repeat_interleave"})
_FOLLOWED = _ELEMENTWISE | _REDUCTIONS | _NEW_AXIS
_CONSTANTS = frozenset(
    {"eye", "zeros", "ones", "full", "arange", "linspace", "zeros_like", "ones_like", "full_like"}
    | {"new_zeros", "new_ones", "new_full"}
)
"""Their result is the same in each step, unlike that of `torch.tensor` or of a draw."""
_TENSORS = frozenset({"data", "grad", "T", "mT", "H", "mH", "real", "imag"})
"""The properties of a tensor that are tensors."""


class LossOperandsProbe(FunctionProbe[LossOperands, "_Calls"]):
    """Observes each step; the observation describes the last one."""

    watch_steps = 3

    def __init__(self, setup: TrainingSetup) -> None:
        batch = [tensor for _, tensor in tensors_in(setup.batch)]
        super().__init__(setup, _Calls({id(buffer) for buffer in setup.model.buffers()}, batch))
        self._last = LossOperands(())

    def end_step(self, _step: int, /) -> None:
        self._last = LossOperands(tuple(self.calls.comparisons))
        self.calls.reset()

    def observed(self) -> LossOperands:
        return self._last


def _inside_a_distribution() -> bool:
    """Whether torch.distributions takes the difference: it broadcasts the parameters of a distribution on purpose."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        if "/torch/distributions/" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


class _Calls(FunctionObserver):
    """It refers to tensors weakly, so it keeps none alive."""

    in_transforms = True

    def __init__(self, statistics: set[int], batch: Sequence[torch.Tensor]) -> None:
        self._batch = batch
        self._statistics = statistics  # id() of the model's buffers: subtracting one is a normalisation, not a loss
        self.reset()

    def reset(self) -> None:
        self.comparisons: dict[Comparison, None] = {}  # an ordered set
        self._from: _Weak = WeakTensorKeyDictionary()  # tensor → the differences it was computed from
        self._outer: _Weak = WeakTensorKeyDictionary()  # tensors into which the code inserted an axis
        self._made: _Weak = WeakTensorKeyDictionary()  # tensors without a gradient that were computed in this step

    def name_of(self, func: Callable[..., Any]) -> str | None:
        read = property_read_by(func)
        return getattr(func, "__name__", "") if read is None or read in _TENSORS else None

    def after(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], output: Any, _begun: Any, /) -> None:
        if isinstance(output, torch.Tensor) and output.ndim and not output.requires_grad:
            self._made[output] = not self._is_constant(name, args)
        if name in _LOSSES:
            self._record_loss_function(name, args, kwargs, output)
        elif isinstance(output, torch.Tensor) and (name in _FOLLOWED or "keepdim" in kwargs):
            self._follow(name, args, kwargs, output)

    def _is_constant(self, name: str, args: Sequence[Any]) -> bool:
        """Whether a result depends on nothing but numbers of the program, as an identity matrix does."""
        tensors = [argument for argument in args if isinstance(argument, torch.Tensor)]
        return name in _CONSTANTS or (len(tensors) > 0 and not any(self._made.get(tensor, True) for tensor in tensors))

    def _record_loss_function(self, name: str, args: Any, kwargs: Any, output: Any) -> None:
        operands = [*args, *(kwargs[key] for key in ("input", "target") if key in kwargs)][:2]
        if all(isinstance(operand, torch.Tensor) for operand in operands) and output.requires_grad:
            self._record(self._comparison(name, operands[0], operands[1], user_line()))

    def _follow(self, name: str, args: Any, kwargs: Any, output: torch.Tensor) -> None:
        tensors = [argument for argument in args if isinstance(argument, torch.Tensor)]
        if (name in _NEW_AXIS and tensors and output.ndim > tensors[0].ndim) or kwargs.get("keepdim"):
            self._outer[output] = True
        if name in _ELEMENTWISE or name in _REDUCTIONS:
            made_from = [comparison for tensor in tensors for comparison in self._from.get(tensor, ())]
            compared = name in _DIFFERENCES and len(tensors) == 2 and self._prediction_against_target(*tensors)
            if compared and not _inside_a_distribution():
                # Earlier differences (a mean subtracted from both sides) only prepare this one, unless samples crossed.
                made_from = [before for before in made_from if before.crossed]
                made_from.append(self._comparison(name.strip("_"), tensors[0], tensors[1], user_line()))
            if made_from and output.ndim == 0 and output.requires_grad:
                for comparison in made_from:
                    self._record(comparison)
            elif made_from:
                self._from[output] = tuple(dict.fromkeys(made_from))

    def _comparison(self, name: str, first: torch.Tensor, second: torch.Tensor, at: SourceLine | None) -> Comparison:
        outer = first in self._outer or second in self._outer
        return Comparison(name, tuple(first.shape), tuple(second.shape), at, outer)

    def _prediction_against_target(self, first: torch.Tensor, second: torch.Tensor) -> bool:
        """Whether one is computed with a gradient and the other is given without one and is no buffer of the model."""
        computed, given = (first, second) if first.requires_grad else (second, first)
        if computed.grad_fn is None or given.requires_grad or id(given) in self._statistics:
            return False
        return not self._is_the_same_for_each_sample(computed, given)

    def _is_the_same_for_each_sample(self, computed: torch.Tensor, given: torch.Tensor) -> bool:
        """Whether it has the shape of one sample and is a constant, or neither of the batch nor computed in this step.

        Such as a centre, or an identity matrix. A target has rows, as the prediction does, and is new in each step.
        """
        if not 0 < given.ndim < computed.ndim or given.shape != computed.shape[-given.ndim :]:
            return False
        if self._made.get(given, False):
            return False
        return all(tensor.shape != given.shape or not torch.equal(tensor, given) for tensor in self._batch)

    def _record(self, comparison: Comparison) -> None:
        self.comparisons[comparison] = None
