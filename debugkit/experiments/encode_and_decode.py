"""Encode a fine grid of actions as tokens and decode it, in every dimension: where does each bin come back?"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from debugkit.batch_roles import target
from debugkit.experiments import experiment
from debugkit.finding import NotExamined, SourceLine
from debugkit.observations.action_tokens import ActionTokenisers, ActionTokens, TokenisedDimension
from debugkit.subject import Subject

_PAIRS = (
    ("encode_actions", "decode_actions"),
    ("encode_action", "decode_action"),
    ("tokenize_actions", "detokenize_actions"),
    ("tokenize_action", "detokenize_action"),
    ("actions_to_tokens", "tokens_to_actions"),
    ("action_to_tokens", "tokens_to_action"),
    ("actions_to_ids", "ids_to_actions"),
    ("to_tokens", "to_actions"),
    ("discretize", "undiscretize"),
)
_PAIRS_OF_A_TOKENISER = (("encode", "decode"), ("tokenize", "detokenize"))
_POINTS = 16_384
"""Sixteen to a bin for 1,024 bins."""
_EDGE = 1e-3
"""In bin widths: rounding puts a value that is decoded to an edge on either side of it."""
_WIDEST_ACTION = 32


@dataclass(frozen=True)
class _Pair:
    module: str | None
    encode: Callable[[torch.Tensor], Any]
    decode: Callable[[torch.Tensor], Any]


@experiment(ActionTokenisers, cost=0)
def encode_and_decode(subject: Subject) -> ActionTokenisers:
    """No forward pass: two small functions on a grid."""
    pairs = list(_pairs(subject))
    if not pairs:
        raise NotExamined(
            "No pair that encodes actions as tokens was found by name: declare=Declare(action_tokens=(encode, decode))."
        )
    tried = [found for pair in pairs if (found := _try(pair, subject)) is not None]
    if not tried:
        raise NotExamined("The tokeniser does not give one token for each action value, so bins cannot be compared.")
    return ActionTokenisers(tuple(tried))


def _pairs(subject: Subject) -> Iterator[_Pair]:
    if subject.declare.action_tokens is not None:
        yield _Pair(None, *subject.declare.action_tokens)
        return
    seen: set[int] = set()
    for module, path in subject.module_paths.items():
        for owner in (module, *vars(module).values()):
            if id(owner) in seen or isinstance(owner, torch.Tensor | type | dict | list | tuple | str):
                continue
            seen.add(id(owner))
            for forth, back in (*_PAIRS, *_PAIRS_OF_A_TOKENISER):
                encode, decode = getattr(owner, forth, None), getattr(owner, back, None)
                if not (callable(encode) and callable(decode)):
                    continue
                if (forth, back) in _PAIRS or _takes_actions(owner, encode):
                    yield _Pair(path, encode, decode)


def _takes_actions(owner: Any, encode: Callable[..., Any]) -> bool:
    """Whether `encode` is about actions, and not about text: by its owner's name or its first parameter's."""
    name = type(owner).__name__.lower()
    try:
        first = next(iter(inspect.signature(encode).parameters), "")
    except (TypeError, ValueError):  # some built-in callables have no signature
        first = ""
    return ("action" in name and ("token" in name or "bin" in name)) or first in ("action", "actions")


def _try(pair: _Pair, subject: Subject) -> ActionTokens | None:
    """The pair over the range in which it tells most actions apart, in the first shape that it takes."""
    best: tuple[int, ActionTokens] | None = None
    for low, high in _ranges(subject):
        for shape in _shapes(subject):
            found = _measure(pair, low, high, shape)
            if found is not None:
                bins = min(dimension.bins for dimension in found.dimensions)
                best = max(best, (bins, found), key=lambda each: each[0]) if best else (bins, found)
                break
    return None if best is None or best[0] < 3 else best[1]


def _ranges(subject: Subject) -> list[tuple[float, float]]:
    found = target(subject)
    ranges = [(-1.0, 1.0)]
    if found is not None and found[1].is_floating_point():
        low, high = float(found[1].min()), float(found[1].max())
        if low < high:
            ranges.append((low, high))
    return ranges


def _shapes(subject: Subject) -> list[tuple[int, ...]]:
    """Shapes of one action, or of one chunk of them: the batch's own first."""
    found = target(subject)
    shapes: list[tuple[int, ...]] = []
    if found is not None and found[1].ndim > 1:
        shapes += [tuple(found[1].shape[1:]), (found[1].shape[-1],)]
    return [*shapes, *((width,) for width in range(1, _WIDEST_ACTION + 1)), ()]


def _measure(pair: _Pair, low: float, high: float, shape: tuple[int, ...]) -> ActionTokens | None:
    grid = torch.linspace(low, high, _POINTS)  # (N,)
    actions = grid.view(-1, *(1 for _ in shape)).expand(-1, *shape).clone()  # every dimension the same grid
    try:
        with torch.no_grad():
            tokens = torch.as_tensor(pair.encode(actions.clone()))
            decoded = torch.as_tensor(pair.decode(tokens.clone()))
            again = torch.as_tensor(pair.encode(decoded.clone().to(actions)))
            survives = (again == tokens) | (torch.as_tensor(pair.decode(again.clone())) == decoded)
    except Exception:
        return None  # not made for this shape or range: another one may fit
    if tokens.shape != actions.shape or decoded.shape != actions.shape or again.shape != tokens.shape:
        return None
    if tokens.is_floating_point() or not decoded.is_floating_point():
        return None
    width = shape[-1] if shape else 1
    columns = [tensor.reshape(_POINTS, -1)[:, -width:] for tensor in (tokens, decoded, survives)]
    dimensions = tuple(_dimension(index, grid, *(column[:, index] for column in columns)) for index in range(width))
    return ActionTokens(
        module=pair.module,
        encode=_name(pair.encode),
        decode=_name(pair.decode),
        at=_first_line(pair.decode),
        low=low,
        high=high,
        dimensions=dimensions,
    )


def _dimension(
    index: int, grid: torch.Tensor, tokens: torch.Tensor, decoded: torch.Tensor, survives: torch.Tensor
) -> TokenisedDimension:
    ids, place = torch.unique(tokens, return_inverse=True)  # place (N,): the bin of each grid point
    first = torch.full((len(ids),), torch.inf, dtype=torch.float64).scatter_reduce(0, place, grid.double(), "amin")
    last = torch.full((len(ids),), -torch.inf, dtype=torch.float64).scatter_reduce(0, place, grid.double(), "amax")
    value = torch.zeros(len(ids), dtype=torch.float64).scatter(0, place, decoded.double())
    step = float(grid[1] - grid[0])
    width, middle = last - first + step, (first + last) / 2
    order = middle.argsort()[1:-1]  # the outermost bins hold what is clipped
    offset = ((value - middle) / width)[order]
    slack = step / width[order] + _EDGE
    unstable = torch.unique(tokens[~survives])
    return TokenisedDimension(
        dimension=index,
        bins=len(ids),
        bias=float(offset.mean()) if len(order) else 0.0,
        outside=int((offset.abs() > 0.5 + slack).sum()),
        worst=float(offset.abs().max()) if len(order) else 0.0,
        unstable=len(unstable),
    )


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _first_line(function: Callable[..., Any]) -> SourceLine | None:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return None if code is None else SourceLine(code.co_filename, code.co_firstlineno, code.co_name)
