"""Finds `(x - mean) / std` and `(x - min) / (max - min)` in a pass, also where no method normalises."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from debugkit.finding import SourceLine
from debugkit.frames import user_line
from debugkit.recorders.function_calls import FunctionObserver
from debugkit.structure import tensors_in

_SUBTRACT = frozenset(("sub", "__sub__", "subtract", "sub_", "subtract_", "__isub__"))
_DIVIDE = frozenset(("div", "__truediv__", "divide", "true_divide", "div_", "divide_", "true_divide_", "__itruediv__"))
_MULTIPLY = frozenset(("mul", "__mul__", "__rmul__", "multiply", "mul_", "__imul__"))
_SQUARES = frozenset(("pow", "__pow__", "__ipow__", "pow_", "square", "square_"))
_LIKE_ANOTHER = frozenset(("to", "type_as", "view_as", "expand_as", "reshape_as"))
_MOST_ROWS = 100_000
_MOST_CENTRED = 64


@dataclass(frozen=True)
class Pair:
    """Two statistics of one owner, by the owner's number and their names."""

    owner: int
    names: tuple[str, str]
    is_range: bool
    """min and max, or quantiles: the second is not a spread."""

    @property
    def first(self) -> tuple[Pair, int]:
        return self, 0

    @property
    def second(self) -> tuple[Pair, int]:
        return self, 1


@dataclass(frozen=True, eq=False)
class Normalised:
    """The values that one line computed: (rows, dimensions). The pairs are several where they share their tensors."""

    pairs: tuple[Pair, ...]
    line: SourceLine | None
    values: torch.Tensor


@dataclass(eq=False)
class _Centred:
    """`x - location`, perhaps times a number."""

    tensor: torch.Tensor
    location: torch.Tensor
    from_low: frozenset[Pair]
    """The pairs whose first statistic alone is the location."""
    pairs: frozenset[Pair]
    kept: torch.Tensor
    """Whether x differs from zero there: padding is left out."""
    factor: float = 1.0


class Arithmetic(FunctionObserver):
    """Follows the statistics, what is computed from them alone, and what is centred with them."""

    def __init__(self, statistics: Sequence[tuple[Pair, torch.Tensor, torch.Tensor]]) -> None:
        self.found: list[Normalised] = []
        self._held: list[torch.Tensor] = []  # so that no id is used again
        self._sources: dict[int, frozenset[tuple[Pair, int]]] = {}
        self._centred: dict[int, _Centred] = {}
        self._predicted: weakref.WeakValueDictionary[int, torch.Tensor] = weakref.WeakValueDictionary()
        for pair, first, second in statistics:
            self._follow(first, frozenset((pair.first,)))
            self._follow(second, frozenset((pair.second,)))

    def forget(self) -> None:
        """Drop the tensors of a batch."""
        self._centred.clear()

    def name_of(self, func: Callable[..., Any]) -> str | None:
        return getattr(func, "__name__", None)

    def after(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], output: Any, _begun: Any, /) -> None:
        given = args[:1] if name in _LIKE_ANOTHER else [*args, *kwargs.values()]
        tensors = [tensor for value in given for _, tensor in tensors_in(value)]
        if not tensors or name.endswith("_like") or name.startswith("new_"):
            return
        if any(self._is_predicted(tensor) for tensor in tensors):
            self._predicted.update((id(tensor), tensor) for _, tensor in tensors_in(output))
        elif not isinstance(output, torch.Tensor):
            return
        elif all(id(tensor) in self._sources for tensor in tensors):
            if name in _SQUARES or (name in _MULTIPLY and len(tensors) > 1):
                return  # of another unit, so it is compared with nothing
            self._follow(output, frozenset().union(*(self._sources[id(tensor)] for tensor in tensors)))
        elif len(args) >= 2 and output.is_floating_point():
            if name in _SUBTRACT and not kwargs:
                self._subtracted(args[0], args[1], output)
            elif name in _DIVIDE and not kwargs:
                self._divided(args[0], args[1], output)
            elif name in _MULTIPLY and (scaled := _scaled(args, self._centred)) is not None:
                centred, factor = scaled
                self._centre(output, centred, factor)

    def _is_predicted(self, tensor: torch.Tensor) -> bool:
        """Whether it is a trainable parameter or was computed with one."""
        trains = isinstance(tensor, nn.Parameter) and tensor.requires_grad
        return trains or self._predicted.get(id(tensor)) is tensor

    def _follow(self, tensor: torch.Tensor, sources: frozenset[tuple[Pair, int]]) -> None:
        self._held.append(tensor)
        self._sources[id(tensor)] = self._sources.get(id(tensor), frozenset()) | sources

    def _subtracted(self, x: Any, location: Any, output: torch.Tensor) -> None:
        sources = self._sources.get(id(location))
        if sources is None or not isinstance(x, torch.Tensor) or len(self._centred) >= _MOST_CENTRED:
            return
        if (axis := _axis(location)) is None or not _has_dimensions(x, location, axis):
            return
        both = frozenset(pair for pair, _ in sources)
        low = frozenset(pair for pair in both if (pair, 1) not in sources)
        differs = _columns(output != -location, location.numel(), axis).any(1)
        self._centred[id(output)] = _Centred(output, location, low, both, differs)

    def _centre(self, output: torch.Tensor, centred: _Centred, factor: float) -> None:
        self._centred[id(output)] = _Centred(
            output, centred.location, centred.from_low, centred.pairs, centred.kept, centred.factor * factor
        )

    def _divided(self, centred: Any, spread: Any, output: torch.Tensor) -> None:
        known, sources = self._centred.get(id(centred)), self._sources.get(id(spread))
        if known is None or sources is None or known.tensor is not centred:
            return
        pairs = [pair for pair in known.pairs if pair.second in sources]
        pairs = [pair for pair in pairs if pair.is_range or (pair in known.from_low and pair.first not in sources)]
        axis = _axis(known.location)
        if not pairs or axis is None or not known.factor:
            return
        values = _columns(output, known.location.numel(), axis)[known.kept].double() / known.factor
        if pairs[0].is_range and pairs[0] in known.from_low:
            values = 2 * values - 1
        self.found.append(
            Normalised(tuple(pairs), user_line(), values[:: max(1, len(values) // _MOST_ROWS)].detach().clone())
        )


def _scaled(args: Sequence[Any], centred: dict[int, _Centred]) -> tuple[_Centred, float] | None:
    for one, other in ((args[0], args[1]), (args[1], args[0])):
        if id(one) in centred and centred[id(one)].tensor is one and isinstance(other, int | float):
            return centred[id(one)], float(other)
    return None


def _axis(statistic: torch.Tensor) -> int | None:
    """The dimension from the right along which a statistic lies; None if it has several."""
    long = [index - statistic.ndim for index, size in enumerate(statistic.shape) if size > 1]
    return None if len(long) > 1 else long[0] if long else -1


def _has_dimensions(x: torch.Tensor, location: torch.Tensor, axis: int) -> bool:
    """Whether x has a value for each dimension: a distance to each of several centres has not."""
    return location.numel() == 1 or (x.ndim >= -axis and x.shape[axis] == location.numel())


def _columns(values: torch.Tensor, width: int, axis: int) -> torch.Tensor:
    return values.reshape(-1, 1) if width == 1 else values.movedim(axis, -1).reshape(-1, width)


def by_line(found: Sequence[Normalised]) -> Iterator[Normalised]:
    """The values of each line and pair together."""
    groups: dict[tuple[tuple[Pair, ...], SourceLine | None], list[torch.Tensor]] = {}
    for one in found:
        groups.setdefault((one.pairs, one.line), []).append(one.values)
    for (pairs, line), values in groups.items():
        yield Normalised(pairs, line, torch.cat(values))
