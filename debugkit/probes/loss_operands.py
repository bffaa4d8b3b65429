"""Records what each loss compares, loss functions and hand-written differences alike, with the line that does it.

A difference taken by hand is a loss if what follows is element by element (`** 2`, `abs`, a mask) or a reduction, up to
a scalar that requires a gradient. A relative position or a metric does not end so.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, Self

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from debugkit.finding import SourceLine
from debugkit.frames import user_line
from debugkit.function_modes import leave
from debugkit.observations.loss_operands import Comparison, LossOperands
from debugkit.probes import Probe, probe
from debugkit.subject import Subject

_LOSSES = frozenset({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "poisson_nll_loss"})
"""Loss functions of torch that broadcast; the others raise for operands that do not match."""
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


@probe(LossOperands, watch_steps=3)
class LossOperandsProbe(Probe[LossOperands]):
    """Attach for the step; the observation is of the last one."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._recorder = _Recorder({id(buffer) for buffer in subject.model.buffers()})
        self._last = LossOperands(())

    def __enter__(self) -> Self:
        self._recorder.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        leave(self._recorder)

    def end_step(self, _step: int, /) -> None:
        self._last = LossOperands(tuple(self._recorder.comparisons))
        self._recorder.forget()

    @property
    def observation(self) -> LossOperands:
        return self._last


class _Recorder(TorchFunctionMode):
    """Sees every call of torch; follows tensors by weak reference, so it keeps none alive."""

    def __init__(self, statistics: set[int]) -> None:
        super().__init__()
        self._statistics = statistics  # id() of the model's buffers: what is subtracted from them normalises
        self.forget()

    def forget(self) -> None:
        self.comparisons: dict[Comparison, None] = {}  # ordered, and each once
        self._from: _Weak = WeakTensorKeyDictionary()  # tensor → the differences it was made from
        self._outer: _Weak = WeakTensorKeyDictionary()  # tensors with an axis put in on purpose

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name in _LOSSES:
            self._note_loss_function(name, args, kwargs, output)
        elif isinstance(output, torch.Tensor):
            self._follow(name, args, kwargs, output)
        return output

    def _note_loss_function(self, name: str, args: Any, kwargs: Any, output: Any) -> None:
        operands = [*args, *(kwargs[key] for key in ("input", "target") if key in kwargs)][:2]
        if all(isinstance(operand, torch.Tensor) for operand in operands) and output.requires_grad:
            self._record(self._comparison(name, operands[0], operands[1], user_line()))

    def _follow(self, name: str, args: Any, kwargs: Any, output: torch.Tensor) -> None:
        tensors = [argument for argument in args if isinstance(argument, torch.Tensor)]
        if (name in _NEW_AXIS and tensors and output.ndim > tensors[0].ndim) or kwargs.get("keepdim"):
            self._outer[output] = True
        if name in _ELEMENTWISE or name in _REDUCTIONS:
            made_from = [comparison for tensor in tensors for comparison in self._from.get(tensor, ())]
            if name in _DIFFERENCES and len(tensors) == 2 and self._prediction_against_target(*tensors):
                # What went before (a mean taken off both sides, say) prepared this one, unless it crossed samples.
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
        """What is computed with a gradient against what is given without one, and neither is a buffer of the model."""
        computed, given = (first, second) if first.requires_grad else (second, first)
        return computed.grad_fn is not None and not given.requires_grad and id(given) not in self._statistics

    def _record(self, comparison: Comparison) -> None:
        self.comparisons[comparison] = None
