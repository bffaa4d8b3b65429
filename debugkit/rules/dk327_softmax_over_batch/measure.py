"""Follow the scores of each attention from their product to the softmax, and the weights to the product with values.

It refers to tensors weakly, and reads shapes only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from debugkit.frames import user_line
from debugkit.recorders.by_tensor import ByTensor
from debugkit.recorders.function_calls import FunctionObserver
from debugkit.recorders.function_probe import FunctionProbe
from debugkit.rules.dk327_softmax_over_batch import AttentionSoftmaxes, BatchSoftmax
from debugkit.setup import TrainingSetup

_PRODUCTS = frozenset({"matmul", "bmm", "__matmul__"})
_CASTS = frozenset({"to", "type_as", "type", "float", "half", "bfloat16", "double", "contiguous", "clone"})
_MASKS = frozenset({"dropout", "mul", "__mul__", "__rmul__", "mul_", "masked_fill", "masked_fill_", "nan_to_num"})
_SCORES = frozenset(
    {"div", "__truediv__", "div_", "true_divide", "add", "__add__", "__radd__", "add_", "sub", "__sub__", "where"}
    | {"clamp", "tanh", "__itruediv__", "__iadd__", "__imul__"}
)
_MOVES = frozenset({"transpose", "permute", "swapaxes", "movedim", "view", "reshape", "flatten", "unflatten"})
_REDUCTIONS = frozenset({"sum", "mean", "amax", "amin", "max", "min", "logsumexp", "std", "var", "norm", "prod"})
_CHOICES = frozenset({"unbind", "select", "chunk", "split", "__getitem__", "index_select", "gather", "cumsum"})
_LAYERS = frozenset({"linear", "conv1d", "conv2d", "conv3d", "softmax"})
_MOST = 64


@dataclass(eq=False)
class _Softmax:
    """A softmax over a dimension of scores."""

    found: BatchSoftmax
    is_read: bool = False
    """Whether a product takes the dimension for one of its batch dimensions."""
    is_combined: bool = False
    """Whether the results were combined over the dimension afterwards, or the weights scaled again."""


class SoftmaxDimsProbe(FunctionProbe[AttentionSoftmaxes, "_Calls"]):
    """Reads shapes only."""

    watch_steps = 3
    partial = True

    def __init__(self, setup: TrainingSetup) -> None:
        running: list[str] = []
        super().__init__(setup, _Calls(running), running)
        self._last = AttentionSoftmaxes(0, ())

    def end_step(self, _step: int, /) -> None:
        wrong = {one.found.at: one.found for one in self.calls.softmaxes if one.is_read and not one.is_combined}
        self._last = AttentionSoftmaxes(self._last.read + self.calls.read, self._last.wrong or tuple(wrong.values()))
        self.calls.reset()

    def observed(self) -> AttentionSoftmaxes:
        return self._last


class _Calls(FunctionObserver):
    functions = _PRODUCTS | _CASTS | _MASKS | _SCORES | _MOVES | _REDUCTIONS | _CHOICES | _LAYERS | {"einsum"}

    def __init__(self, running: list[str]) -> None:
        self._running = running
        self.reset()

    def reset(self) -> None:
        self.softmaxes: list[_Softmax] = []
        self.read = 0
        self._scores = ByTensor[bool]()
        self._weights = ByTensor[_Softmax]()
        self._results = ByTensor[tuple[_Softmax, int]]()
        """The results of products, with the dimension over which the softmax ran."""

    def after(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], output: Any, _begun: Any, /) -> None:
        if name == "einsum":
            self._einsum(args, output)
            return
        if not args or not isinstance(args[0], Tensor):
            return
        if name in _PRODUCTS:
            if len(args) > 1 and isinstance(args[1], Tensor) and isinstance(output, Tensor):
                self._product(args[0], args[1], output)
            return
        if name == "softmax" and isinstance(output, Tensor) and self._scores.get(args[0]):
            self._softmax(args, kwargs, output)
        tensors = [one for one in (*args, *kwargs.values()) if isinstance(one, Tensor)]
        if isinstance(output, Tensor):
            self._follow_weights(name, tensors, output)
        for one in tensors:
            if (known := self._results.get(one)) is not None:
                self._follow_result(name, known, one, args, kwargs, output)

    def _softmax(self, args: Sequence[Any], kwargs: dict[str, Any], output: Tensor) -> None:
        given = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if given is None:
            given = 0 if output.ndim in (0, 1, 3) else 1  # what PyTorch takes, with a warning
        if isinstance(given, int) and len(self.softmaxes) < _MOST:
            module = self._running[-1] if self._running else None
            found = BatchSoftmax(given % output.ndim, tuple(output.shape), module, user_line())
            self._weights[output] = one = _Softmax(found)
            self.softmaxes.append(one)

    def _follow_weights(self, name: str, tensors: Sequence[Tensor], output: Tensor) -> None:
        """Scores stay scores, and weights stay weights, if only masked or converted. Others are scaled again."""
        is_scaled = "mul" in name and sum(one.requires_grad for one in tensors) > 1  # by a gate, or other weights
        for one in tensors:
            if name in ("div_", "__itruediv__") and (known := self._weights.get(one)) is not None:
                known.is_combined = True
            if one is output or one.shape != output.shape:
                continue
            if name in _SCORES | _MASKS | _CASTS and self._scores.get(one):
                self._scores[output] = True
            if (known := self._weights.get(one)) is not None and name in _MASKS | _CASTS and not is_scaled:
                self._weights[output] = known

    def _product(self, first: Tensor, second: Tensor, output: Tensor) -> None:
        softmax = self._weights.get(first)
        if softmax is not None and first.ndim == len(softmax.found.shape) and first.ndim <= output.ndim:
            self.read += 1
            found = softmax.found
            if found.dim < first.ndim - 2 and found.shape[found.dim] > 1 and min(first.shape[-2:]) > 1:
                self._reads(softmax, output, output.ndim - first.ndim + found.dim)
        self._combines(first, first.ndim - 1)
        self._combines(second, second.ndim - 2)
        are_activations = not any(isinstance(one, nn.Parameter) for one in (first, second))
        if are_activations and output.ndim > 2 and second.ndim == first.ndim and min(output.shape[-2:]) > 1:
            self._scores[output] = True

    def _reads(self, softmax: _Softmax, output: Tensor, dim: int) -> None:
        softmax.is_read = True
        self._results[output] = softmax, dim

    def _combines(self, tensor: Tensor, dim: int) -> None:
        known = self._results.get(tensor)
        if known is not None and known[1] == dim:
            known[0].is_combined = True

    def _einsum(self, args: Sequence[Any], output: Any) -> None:
        """Of two tensors, with a result that is written out."""
        operands = args[1] if len(args) == 2 and isinstance(args[1], list | tuple) else args[1:]
        if not isinstance(args[0], str) or "->" not in args[0] or not isinstance(output, Tensor):
            return
        terms, result = args[0].replace(" ", "").split("->")
        letters = terms.split(",")
        if len(letters) != len(operands) or "." in terms or not all(isinstance(one, Tensor) for one in operands):
            return
        for these, operand in zip(letters, operands, strict=True):
            known = self._results.get(operand)
            if known is not None and len(operands) == 1:
                self._results[output] = known[0], result.find(these[known[1]])
            if known is not None and (these[known[1]] not in result or len(operands) > 1):
                known[0].is_combined = True
        if len(operands) != 2:
            return
        sizes = dict(zip("".join(letters), [size for one in operands for size in one.shape], strict=True))
        first, second = letters
        softmax = self._weights.get(operands[0])
        if softmax is not None:
            self.read += 1
            ran = first[softmax.found.dim]
            queries = math.prod(sizes[one] for one in first if one in result and one not in second)
            keys = math.prod(sizes[one] for one in first if one in second and one not in result)
            if ran in second and ran in result and sizes[ran] > 1 and min(queries, keys) > 1:
                self._reads(softmax, output, result.index(ran))
        is_contracted = any(one in second and one not in result for one in first)
        pairs = [one for one in result if (one in first) != (one in second)]
        are_activations = not any(isinstance(one, nn.Parameter) for one in operands)
        if are_activations and is_contracted and len(result) > 2 and len(pairs) == 2:
            self._scores[output] = True

    def _follow_result(
        self,
        name: str,
        known: tuple[_Softmax, int],
        tensor: Tensor,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        output: Any,
    ) -> None:
        """Where the dimension of the softmax is in what is made of a result."""
        softmax, dim = known
        if name in _REDUCTIONS or name in _CHOICES:
            chosen = kwargs.get("dim", kwargs.get("axis", args[1] if len(args) > 1 else None))
            places = chosen if isinstance(chosen, tuple | list) else (chosen,)
            if name == "__getitem__" or any(isinstance(one, int) and one % tensor.ndim == dim for one in places):
                softmax.is_combined = True
            return
        if name == "linear" or name.startswith("conv"):
            softmax.is_combined |= dim == (tensor.ndim - 1 if name == "linear" else 1)
            return
        if not isinstance(output, Tensor) or output is tensor:
            return
        if name in _MOVES:
            place = _moved(name, tensor, dim, args, kwargs, output)
            if place is not None:
                self._results[output] = softmax, place
        elif tensor.shape == output.shape:
            self._results[output] = known


def _moved(
    name: str, tensor: Tensor, dim: int, args: Sequence[Any], kwargs: dict[str, Any], output: Tensor
) -> int | None:
    """The place of a dimension after the call; None if it is merged with others."""
    if name in ("view", "reshape", "flatten", "unflatten"):
        from_front = output.shape[: dim + 1] == tensor.shape[: dim + 1]
        from_back = output.shape[dim - tensor.ndim :] == tensor.shape[dim:]
        return dim if from_front else output.ndim - tensor.ndim + dim if from_back else None
    order = _ORDERS[name](tensor.ndim, [*args[1:], *kwargs.values()])
    return order.index(dim) if order is not None else None


def _permuted(ndim: int, given: Sequence[Any]) -> list[int] | None:
    dims = given[0] if len(given) == 1 and isinstance(given[0], tuple | list) else given
    return [one % ndim for one in dims]


def _swapped(ndim: int, given: Sequence[Any]) -> list[int] | None:
    one, other = (place % ndim for place in given)
    order = list(range(ndim))
    order[one], order[other] = order[other], order[one]
    return order


def _put(ndim: int, given: Sequence[Any]) -> list[int] | None:
    if not all(isinstance(one, int) for one in given):
        return None
    source, goal = (place % ndim for place in given)
    order = [place for place in range(ndim) if place != source]
    order.insert(goal, source)
    return order


_ORDERS: dict[str, Callable[[int, Sequence[Any]], list[int] | None]] = {
    "permute": _permuted,
    "transpose": _swapped,
    "swapaxes": _swapped,
    "movedim": _put,
}
