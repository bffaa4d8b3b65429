"""Rotary phases in float64, and what explains others."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from labs.grading import Rng

HEAD, BASE = 16, 10_000
"""The width of an attention head of the tiny policy, and Llama's base."""
ROUNDING = {torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}
"""The largest relative error of rounding to a dtype."""
SAME = 0.05
QUERIES = 32

EXACT = "exactly"
FREQUENCIES_ROUNDED = "from frequencies in bfloat16"
POSITIONS_ROUNDED = "from positions in bfloat16"
ALL_ROUNDED = "all in bfloat16"


def frequencies() -> Tensor:
    """Radians for each position, (head / 2,), in float64."""
    return BASE ** (-torch.arange(0, HEAD, 2).double() / HEAD)


def exact(positions: Tensor, function: str) -> Tensor:
    """The cosines or sines (..., head) at `positions` (...)."""
    return of_phases(positions.double()[..., None] * frequencies(), function)


def of_phases(phases: Tensor, function: str) -> Tensor:
    """The cosines or sines (..., head) of `phases` (..., head / 2), in float64."""
    both = torch.cat([phases, phases], dim=-1).double()
    return both.cos() if function == "cos" else both.sin()


def largest_error(found: Tensor, positions: Tensor, function: str) -> float:
    """How far the cosines or sines (..., head) are off at most, beyond the rounding of the result to its dtype."""
    wanted = exact(positions, function)
    beyond = (found.double() - wanted).abs() - ROUNDING[found.dtype] * wanted.abs()
    return float(beyond.clamp(min=0).max())


def explain(positions: Tensor, found: Mapping[str, Tensor]) -> str:
    """Which way of computing in bfloat16 gives these cosines and sines; the exact one first."""
    rounded, wide = positions.bfloat16(), positions.double()[..., None]
    candidates = {
        EXACT: [wide * frequencies()],
        FREQUENCIES_ROUNDED: [wide * frequencies().bfloat16().double()],
        POSITIONS_ROUNDED: [
            rounded.double()[..., None] * frequencies(),
            (rounded[..., None].float() * frequencies().float()).bfloat16(),
        ],
        ALL_ROUNDED: [rounded[..., None] * frequencies().bfloat16()],
    }
    for name, phases in candidates.items():
        for one in phases:
            errors = [(found[function].double() - of_phases(one, function)).abs().max() for function in ("cos", "sin")]
            if max(errors) < SAME:
                return name
    return "in another way"


def base_of(found: Mapping[str, Tensor]) -> float | None:
    """The base of the frequencies, from the phases (1, T, head) of the positions 0, 1, ...; None if there is none."""
    phase = torch.atan2(found["sin"][0, 1].double(), found["cos"][0, 1].double())[: HEAD // 2]
    if abs(float(phase[0]) - 1) > 1e-3 or not bool((phase > 0).all()):
        return None
    each = phase[1:] ** (-HEAD / torch.arange(2, HEAD, 2).double())
    middle = float(each.median())
    return middle if bool(((each / middle - 1).abs() < 0.02).all()) else None


def score_error(rng: Rng, cos: Tensor, sin: Tensor) -> float:
    """How far attention scores are off at most, relative to their size.

    `cos` and `sin` (T, head) are those of an observation. Queries and keys are random; the exact scores depend on the
    distance of two tokens alone.
    """
    length = len(cos)
    chosen = torch.cat([rng.integers(0, length, QUERIES), torch.tensor([length - 1])])
    query, key = rng.normal(len(chosen), HEAD).double(), rng.normal(length, HEAD).double()
    exact_cos, exact_sin = (exact(torch.arange(length), function) for function in ("cos", "sin"))
    found = turned(query, cos[chosen], sin[chosen]) @ turned(key, cos, sin).T
    wanted = turned(query, exact_cos[chosen], exact_sin[chosen]) @ turned(key, exact_cos, exact_sin).T
    size = query.norm(dim=1)[:, None] * key.norm(dim=1)[None]
    return float(((found - wanted) / size).abs().max())


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Queries or keys (T, head), turned by their phases, as Llama does."""
    first, second = x.chunk(2, dim=-1)
    return x * cos.double() + torch.cat([-second, first], dim=-1) * sin.double()
