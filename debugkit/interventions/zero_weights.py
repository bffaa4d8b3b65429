"""Terms of a loss whose weight is 0 in this step: an auxiliary loss that is switched on later, by a schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.autograd.graph import Node
from torch.overrides import TorchFunctionMode

_PRODUCTS = frozenset(("mul", "__mul__", "__rmul__", "multiply", "mul_", "__imul__"))


class ZeroWeights(TorchFunctionMode):
    """Inside the block, `nodes` collects the scalars, terms of a loss, that are multiplied by a number that is 0."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[Node] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        if getattr(func, "__name__", "") in _PRODUCTS and len(args) == 2:
            for term, weight in (args, args[::-1]):
                if isinstance(term, Tensor) and term.ndim == 0 and term.grad_fn is not None and _is_zero(weight):
                    self.nodes.append(term.grad_fn)
        return func(*args, **(kwargs or {}))


def _is_zero(weight: Any) -> bool:
    return isinstance(weight, int | float) and not isinstance(weight, bool) and weight == 0
