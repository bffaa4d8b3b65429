"""Records which ids a pass looks up in its tables, and which class ids its losses take as targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from debugkit._torch_private import without_torch_function
from debugkit.finding import SourceLine
from debugkit.frames import user_line

LOSSES = ("cross_entropy", "nll_loss")
_GATHER = "gather"
_RANDOM = ("rand", "randn", "rand_like", "randn_like", "normal", "normal_", "uniform_", "bernoulli", "bernoulli_")
_MORE_RANDOM = ("exponential_", "gumbel_softmax", "poisson")
_IGNORED = -100


@dataclass(frozen=True, eq=False)
class Lookup:
    """One call that reads rows of a table: an embedding, indexing with ids, or one_hot."""

    ids: Tensor
    table: int | None
    """id() of the table; None for one_hot."""
    is_trained: bool
    """Whether the rows are part of the graph, or are no parameters (one_hot)."""
    at: SourceLine | None


@dataclass(frozen=True, eq=False)
class ClassLoss:
    """One call with class ids as targets: a loss of `LOSSES`, or a `gather` of one value of each row."""

    operation: str
    output: Tensor
    targets: Tensor
    """A copy, in any shape."""
    counts: Tensor
    """Which targets are not the ignored index, and of a class whose weight is not 0."""
    at: SourceLine | None


class TokenCalls(TorchFunctionMode):
    """Numbers these calls in their order. `substitutes` replaces the ids of lookups, by their number.

    `scores` is called with the number of a class loss and what it receives, as rows (R, C).
    """

    def __init__(
        self,
        *,
        substitutes: Mapping[int, Tensor] | None = None,
        scores: Callable[[int, Tensor], None] | None = None,
    ) -> None:
        super().__init__()
        self._substitutes = substitutes or {}
        self._scores = scores
        self.lookups: list[Lookup] = []
        self.losses: list[ClassLoss] = []
        self.random: set[tuple[int, ...]] = set()
        """Shapes of the floating-point tensors that were drawn at random."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        looked_up = _ids_and_table(name, args, kwargs)
        if looked_up is not None and (other := self._substitutes.get(len(self.lookups))) is not None:
            args, kwargs = _with_ids(looked_up[0], other, args, kwargs)
        output = func(*args, **kwargs)
        if looked_up is not None and isinstance(output, Tensor):
            self._add_lookup(*looked_up, output)
        elif isinstance(output, Tensor) and (name in LOSSES or name == _GATHER):
            with without_torch_function():
                self._add_loss(name, args, kwargs, output)
        elif isinstance(output, Tensor) and (name in _RANDOM or name in _MORE_RANDOM):
            self.random.add(tuple(output.shape))
        return output

    def _add_lookup(self, ids: Tensor, table: Tensor | None, output: Tensor) -> None:
        with without_torch_function():
            copy = ids.detach().clone()
        key = None if table is None else id(table)
        self.lookups.append(Lookup(copy, key, table is None or output.requires_grad, user_line()))

    def _add_loss(self, name: str, args: Any, kwargs: Any, output: Tensor) -> None:
        given = args[0] if args else kwargs.get("input")
        targets = _gathered(given, args, kwargs) if name == _GATHER else _targets(args, kwargs)
        if targets is None or not isinstance(given, Tensor):
            return
        counts = torch.ones_like(targets, dtype=torch.bool)
        if name in LOSSES:
            counts = _is_weighted(targets, args, kwargs)
        if self._scores is not None:
            self._scores(len(self.losses), _rows(given.detach(), classes_last=name == _GATHER))
        self.losses.append(ClassLoss(name, output, targets.detach().clone(), counts, user_line()))


def _is_index(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in (torch.int64, torch.int32)


def _ids_and_table(name: str, args: Any, kwargs: Any) -> tuple[Tensor, Tensor | None] | None:
    """The ids of a lookup and its table; None for any other call."""
    if name == "one_hot":
        ids = args[0] if args else kwargs.get("tensor")
        return (ids, None) if _is_index(ids) else None
    if name == "embedding":
        given = [*args[:2], *(kwargs[key] for key in ("input", "indices", "weight") if key in kwargs)]
        ids = next((value for value in given if _is_index(value)), None)
        table = next((value for value in given if isinstance(value, Tensor) and value.is_floating_point()), None)
        return None if ids is None or table is None else (ids, table)
    if name == "__getitem__" and len(args) == 2 and _is_index(args[1]) and args[1].ndim:
        table = args[0]
        return (args[1], table) if table.ndim == 2 and table.is_floating_point() else None
    return None


def _with_ids(ids: Tensor, other: Tensor, args: Any, kwargs: Any) -> tuple[Any, Any]:
    args = tuple(other if value is ids else value for value in args)
    return args, {key: other if value is ids else value for key, value in kwargs.items()}


def _targets(args: Any, kwargs: Any) -> Tensor | None:
    targets = args[1] if len(args) > 1 else kwargs.get("target")
    is_usable = isinstance(targets, Tensor) and not (targets.is_floating_point() or targets.dtype is torch.bool)
    return targets if is_usable and targets.numel() else None


def _gathered(given: Any, args: Any, kwargs: Any) -> Tensor | None:
    """The index of one value in each row of the last dimension."""
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    index = args[2] if len(args) > 2 else kwargs.get("index")
    if not (isinstance(given, Tensor) and given.is_floating_point() and _is_index(index) and isinstance(dim, int)):
        return None
    is_one_of_each = given.ndim == index.ndim > 1 and dim in (-1, given.ndim - 1) and index.shape[-1] == 1
    return index[..., 0] if is_one_of_each and index.shape[:-1] == given.shape[:-1] and index.numel() else None


def _is_weighted(targets: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor:
    weight = args[2] if len(args) > 2 else kwargs.get("weight")
    ignored = args[4] if len(args) > 4 else kwargs.get("ignore_index", _IGNORED)
    counts: Tensor = targets != ignored
    if isinstance(weight, Tensor):
        counts &= weight.detach()[targets.clamp(0, len(weight) - 1)] != 0
    return counts


def _rows(given: Tensor, *, classes_last: bool) -> Tensor:
    moved = given if classes_last else given[None] if given.ndim == 1 else given.movedim(1, -1)
    return moved.reshape(-1, moved.shape[-1])
