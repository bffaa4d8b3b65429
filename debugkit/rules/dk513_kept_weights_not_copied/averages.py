"""Follow what enters an average of weights: `lerp_()`, `mul_().add_()`, and sums of products that are copied."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from torch import Tensor
from torch.optim import Optimizer

from debugkit._torch_private import is_compiled
from debugkit.finding import NotExamined, SourceLine
from debugkit.frames import user_line
from debugkit.held_parameters import held_parameters
from debugkit.probe import FIRST_STEPS, SAMPLED_EVERY, THOROUGH_STEPS
from debugkit.recorders.by_tensor import ByTensor
from debugkit.recorders.function_calls import FunctionObserver, detach
from debugkit.recorders.function_probe import FunctionProbe
from debugkit.rules.dk513_kept_weights_not_copied import (
    RATE,
    AverageRate,
    AverageRates,
    SelfAverage,
    SelfAverages,
)
from debugkit.rules.dk513_kept_weights_not_copied.measure import is_plain
from debugkit.setup import TrainingSetup

_Address = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Where the values of a tensor are, with its shape and strides: the same for `weight` and `weight.data`."""
_Terms = tuple[tuple[_Address, float], ...]
"""A sum of tensors, each with its factor."""
_ASSIGNED = "data_"
"""What the assignment of `tensor.data` is called here. Where the values were before is not known then."""
_MOST_TERMS = 4
_REMEMBERED = 64
_DIGITS = 9
"""To which two rates are equal. A schedule of 100,000 steps changes the sixth."""


class AveragesProbe(FunctionProbe[SelfAverages, "_Calls"]):
    """Compares addresses and the numbers in the program's calls, and reads no values of tensors."""

    watch_steps = THOROUGH_STEPS

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup, _Calls(setup))

    def after_optimizer_step(self, optimizer: Optimizer, /) -> None:
        self.calls.trained |= {_address(one) for one in held_parameters(optimizer) if is_plain(one)}

    def end_step(self, _step: int, /) -> None:
        self.calls.begin_step()

    def observed(self) -> SelfAverages:
        return self.calls.observed()


@dataclass
class _Seen:
    """The averages that one function of the program has written."""

    at: SourceLine | None = None
    steps: set[int] = field(default_factory=set)
    written: set[_Address] = field(default_factory=set)
    of_itself: bool = True
    """Whether each was of one tensor with itself."""
    sources: set[_Address] = field(default_factory=set)
    """The other tensors that entered them."""
    rates: set[float] = field(default_factory=set)
    """The sums of the factors of the other tensors."""
    of_one_tensor: bool = True
    """Whether one other tensor entered each."""


class AverageRatesProbe(FunctionProbe[AverageRates, "_Rates"]):
    """The same in the first three steps and, if an average almost became the trained weights in them, in the first 32.

    Reads no values of tensors, so a `lerp_()` whose weight is a tensor is left out.
    """

    watch_every = SAMPLED_EVERY

    def __init__(self, setup: TrainingSetup) -> None:
        if is_compiled(setup.model):
            raise NotExamined("The model is compiled, so its operations cannot be recorded: use debugkit.check().")
        super().__init__(setup, _Rates(setup))
        self._steps = 0
        self._over = False

    def __enter__(self) -> Self:
        return self if self._over else super().__enter__()

    def after_optimizer_step(self, optimizer: Optimizer, /) -> None:
        if not self._over:
            self.calls.trained |= {_address(one) for one in held_parameters(optimizer) if is_plain(one)}

    def end_step(self, _step: int, /) -> None:
        if self._over:
            return
        self.calls.begin_step()
        self._steps += 1
        if self._steps >= FIRST_STEPS or (self._steps >= THOROUGH_STEPS and not self.calls.rates()):
            self._end()

    def loop_ended(self) -> None:
        if not self._over:
            self._end()

    def _end(self) -> None:
        self._over = True
        if self._mode is not None:
            detach(self.calls, self._mode)
            self._mode = None

    def observed(self) -> AverageRates:
        return AverageRates(self.calls.rates(), self._over)


class _Calls(FunctionObserver):
    """It refers to tensors weakly."""

    functions = frozenset(
        {"lerp", "lerp_", "mul", "mul_", "add", "add_", "sub", "sub_", "copy_"}
        | {"_foreach_lerp_", "_foreach_mul_", "_foreach_add_"}
    )

    def __init__(self, setup: TrainingSetup) -> None:
        self._shapes = {tuple(one.shape) for one in setup.model.parameters() if one.ndim}
        self.trained: set[_Address] = set()
        self._step = 0
        self._functions: dict[tuple[str, str | None], _Seen] = {}
        self.begin_step()

    def begin_step(self) -> None:
        """The averages that follow belong to another step."""
        self._step += 1
        self._sums = ByTensor[_Terms]()
        self._scaled: dict[_Address, float] = {}  # by mul_(), and nothing was added yet

    def observed(self) -> SelfAverages:
        seen = self._functions.values()
        return SelfAverages(
            averages=len(seen),
            of_themselves=tuple(
                SelfAverage(
                    tensors=len(one.written),
                    steps=len(one.steps),
                    trained=bool(one.written & self.trained),
                    at=one.at,
                )
                for one in seen
                if one.of_itself
            ),
        )

    def name_of(self, func: Callable[..., Any]) -> str | None:
        if getattr(func, "__name__", "") != "__set__":
            return super().name_of(func)
        return _ASSIGNED if getattr(getattr(func, "__self__", None), "__name__", "") == "data" else None

    def after(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], output: Any, _begun: Any, /) -> None:
        if name.startswith("_foreach"):
            self._each(name.removeprefix("_foreach_"), args, kwargs)
        elif name.endswith("_") or (isinstance(output, Tensor) and not output.requires_grad):
            self._one(name, args, kwargs, output)

    def _each(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        first, *others = args
        second = others[0] if others else kwargs.get("other", kwargs.get("tensors1"))
        for place, tensor in enumerate(first):
            operand = second[place] if isinstance(second, list | tuple) and len(second) == len(first) else second
            self._one(name, (tensor, operand, *others[1:]), kwargs, tensor)

    def _one(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], output: Any) -> None:
        values = [*args[:2], *(kwargs[key] for key in ("other", "end", "src") if key in kwargs)][:2]
        if len(values) < 2 or not any(self._may_be_weight(one) for one in values):
            return
        first, second = values
        if name == "mul" or name == "mul_":
            self._multiplied(name, first, second, output)
        elif not isinstance(first, Tensor) or not isinstance(second, Tensor):
            return
        elif name == "copy_" or name == _ASSIGNED:
            if (copied := self._sums.get(second)) is not None:
                self._written(first, copied, copied[0][0] if name == _ASSIGNED else _address(first))
        elif name == "lerp" or name == "lerp_":
            weight = self._lerp_weight(args[2] if len(args) > 2 else kwargs.get("weight"))
            if weight is not None:
                terms = self._sum(self._terms(first), 1.0 - weight, self._terms(second), weight)
                self._result(name, first, terms, output)
        else:
            alpha = kwargs.get("alpha", 1)
            if isinstance(alpha, int | float):
                factor = -float(alpha) if name.startswith("sub") else float(alpha)
                self._result(name, first, self._sum(self._terms(first), 1.0, self._terms(second), factor), output)

    def _lerp_weight(self, _weight: Any) -> float | None:
        """Any number: whatever the weight is, its two factors add up to 1."""
        return 0.5

    def _multiplied(self, name: str, first: Any, second: Any, output: Any) -> None:
        tensor, number = (first, second) if isinstance(first, Tensor) else (second, first)
        if not isinstance(number, int | float) or not self._may_be_weight(tensor):
            return
        if name == "mul_" and tensor not in self._sums:
            self._scaled[_address(tensor)] = float(number)
        else:
            self._sums[output] = tuple((address, number * factor) for address, factor in self._terms(tensor))

    def _result(self, name: str, first: Tensor, terms: _Terms, output: Any) -> None:
        if not terms:
            return
        if not name.endswith("_") or first in self._sums:
            self._sums[output] = terms
        else:
            self._written(first, terms, _address(first))

    def _terms(self, tensor: Tensor) -> _Terms:
        """The tensors that are summed in this one: by itself, or multiplied in place, if it is not a sum."""
        if (known := self._sums.get(tensor)) is not None:
            return known
        if not is_plain(tensor):
            return ()
        address = _address(tensor)
        return ((address, self._scaled.get(address, 1.0)),)

    def _sum(self, one: _Terms, factor: float, two: _Terms, other: float) -> _Terms:
        if not one or not two or len(one) + len(two) > _MOST_TERMS:
            return ()
        return (*((address, factor * own) for address, own in one), *((address, other * own) for address, own in two))

    def _written(self, tensor: Tensor, terms: _Terms, address: _Address) -> None:
        """Terms were summed in place of the values of a tensor, which were at an address."""
        if not self._may_be_weight(tensor):
            return
        scaled = self._scaled.pop(address, None)
        if len(terms) < 2 or not all(factor for _, factor in terms):
            return
        own = [source == address for source, _ in terms]
        if scaled is not None and all(own):
            terms = (terms[0], *((source, factor / scaled) for source, factor in terms[1:]))
        if not any(own) or not math.isclose(sum(factor for _, factor in terms), 1.0, abs_tol=1e-6):
            return
        at = user_line()
        key = (at.file, at.function) if at is not None else ("", None)
        if key not in self._functions and len(self._functions) == _REMEMBERED:
            return
        seen = self._functions.setdefault(key, _Seen(at))
        seen.steps.add(self._step)
        seen.written.add(address)
        seen.of_itself &= all(own)
        others = {source for source, _ in terms if source != address}
        seen.sources |= others
        seen.rates.add(round(sum(factor for source, factor in terms if source != address), _DIGITS))
        seen.of_one_tensor &= len(others) == 1

    def _may_be_weight(self, value: Any) -> bool:
        return isinstance(value, Tensor) and tuple(value.shape) in self._shapes and is_plain(value)


class _Rates(_Calls):
    """Knows the factors of `lerp_()`, too."""

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._buffers = {_address(one) for one in setup.model.buffers() if is_plain(one)}

    def _lerp_weight(self, weight: Any) -> float | None:
        return float(weight) if isinstance(weight, int | float) else None

    def rates(self) -> tuple[AverageRate, ...]:
        """The averages of each function that have one rate above the threshold, of trained weights and buffers."""
        return tuple(
            AverageRate(rate=rate, tensors=len(one.sources & self.trained), steps=len(one.steps), at=one.at)
            for one in self._functions.values()
            for rate in one.rates
            if RATE < rate < 1 and len(one.rates) == 1 and one.of_one_tensor
            if one.sources & self.trained and one.sources <= self.trained | self._buffers
            if not one.written & self.trained
        )


def _address(tensor: Tensor) -> _Address:
    return tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride())
