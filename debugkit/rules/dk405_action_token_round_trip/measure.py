"""Encode a fine grid of actions as tokens and decode it, in every dimension."""

from __future__ import annotations

import inspect

import torch

from debugkit.finding import NotExamined
from debugkit.frames import definition_line, function_name
from debugkit.interventions.batch_roles import target
from debugkit.interventions.paired_methods import PairedMethods, paired_methods
from debugkit.rules.dk405_action_token_round_trip import ActionTokenisers, ActionTokens, TokenisedDimension
from debugkit.setup import TrainingSetup

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
"""Sixteen points in each bin for 1,024 bins."""
_EDGE = 1e-3
"""In bin widths: a value that decodes to an edge may be rounded to either side of it."""
_WIDEST_ACTION = 32


def encode_and_decode(setup: TrainingSetup) -> ActionTokenisers:
    """Try every pair, declared or found by name; no forward pass is needed."""
    named = paired_methods(setup, setup.declare.action_tokens, (*_PAIRS, *_PAIRS_OF_A_TOKENISER))
    pairs = [pair for pair in named if pair.names not in _PAIRS_OF_A_TOKENISER or _takes_actions(pair)]
    if not pairs:
        raise NotExamined(
            "No pair that encodes actions as tokens was found by name: pass "
            "declare=Declare(action_tokens=(encode, decode))."
        )
    tried = [found for pair in pairs if (found := _try(pair, setup)) is not None]
    if not tried:
        raise NotExamined("The tokeniser does not give one token for each action value, so bins cannot be compared.")
    return ActionTokenisers(tuple(tried))


def _takes_actions(pair: PairedMethods) -> bool:
    """Whether `encode` takes actions and not text, judged by its owner's class name or its first parameter."""
    name = type(pair.owner).__name__.lower()
    try:
        first = next(iter(inspect.signature(pair.forth).parameters), "")
    except (TypeError, ValueError):  # some built-in callables have no signature
        first = ""
    return ("action" in name and ("token" in name or "bin" in name)) or first in ("action", "actions")


def _try(pair: PairedMethods, setup: TrainingSetup) -> ActionTokens | None:
    """The pair on the range in which it distinguishes most actions, in the first shape that it accepts."""
    best: tuple[int, ActionTokens] | None = None
    for low, high in _ranges(setup):
        for shape in _shapes(setup):
            found = _measure(pair, low, high, shape)
            if found is not None:
                bins = min(dimension.bins for dimension in found.dimensions)
                best = max(best, (bins, found), key=lambda each: each[0]) if best else (bins, found)
                break
    return None if best is None or best[0] < 3 else best[1]


def _ranges(setup: TrainingSetup) -> list[tuple[float, float]]:
    found = target(setup)
    ranges = [(-1.0, 1.0)]
    if found is not None and found[1].is_floating_point():
        low, high = float(found[1].min()), float(found[1].max())
        if low < high:
            ranges.append((low, high))
    return ranges


def _shapes(setup: TrainingSetup) -> list[tuple[int, ...]]:
    """Shapes of one action, or of one chunk of actions; the shapes in the batch come first."""
    found = target(setup)
    shapes: list[tuple[int, ...]] = []
    if found is not None and found[1].ndim > 1:
        shapes += [tuple(found[1].shape[1:]), (found[1].shape[-1],)]
    return [*shapes, *((width,) for width in range(1, _WIDEST_ACTION + 1)), ()]


def _measure(pair: PairedMethods, low: float, high: float, shape: tuple[int, ...]) -> ActionTokens | None:
    grid = torch.linspace(low, high, _POINTS)  # (N,)
    actions = grid.view(-1, *(1 for _ in shape)).expand(-1, *shape).clone()  # the same grid in every dimension
    try:
        with torch.no_grad():
            tokens = torch.as_tensor(pair.forth(actions.clone()))
            decoded = torch.as_tensor(pair.back(tokens.clone()))
            again = torch.as_tensor(pair.forth(decoded.clone().to(actions)))
            survives = (again == tokens) | (torch.as_tensor(pair.back(again.clone())) == decoded)
    except Exception:
        return None  # the pair does not accept this shape or range; it may accept another one
    if tokens.shape != actions.shape or decoded.shape != actions.shape or again.shape != tokens.shape:
        return None
    if tokens.is_floating_point() or not decoded.is_floating_point():
        return None
    width = shape[-1] if shape else 1
    columns = [tensor.reshape(_POINTS, -1)[:, -width:] for tensor in (tokens, decoded, survives)]
    dimensions = tuple(_dimension(index, grid, *(column[:, index] for column in columns)) for index in range(width))
    return ActionTokens(
        module=pair.module,
        encode=function_name(pair.forth),
        decode=function_name(pair.back),
        at=definition_line(pair.back),
        low=low,
        high=high,
        dimensions=dimensions,
    )


def _dimension(
    index: int, grid: torch.Tensor, tokens: torch.Tensor, decoded: torch.Tensor, survives: torch.Tensor
) -> TokenisedDimension:
    ids, bin_of = torch.unique(tokens, return_inverse=True)  # bin_of (N,): the bin of each grid point
    first = torch.full((len(ids),), torch.inf, dtype=torch.float64).scatter_reduce(0, bin_of, grid.double(), "amin")
    last = torch.full((len(ids),), -torch.inf, dtype=torch.float64).scatter_reduce(0, bin_of, grid.double(), "amax")
    value = torch.zeros(len(ids), dtype=torch.float64).scatter(0, bin_of, decoded.double())
    step = float(grid[1] - grid[0])
    width, centre = last - first + step, (first + last) / 2
    order = centre.argsort()[1:-1]  # the outermost bins also hold clipped values
    offset = ((value - centre) / width)[order]
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
