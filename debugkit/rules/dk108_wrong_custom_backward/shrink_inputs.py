"""Small inputs for a function, cut from real ones, so that its whole Jacobian can be measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

_SMALL = 4
"""Sizes up to this are not reduced."""
_LARGEST = 10.0
"""Larger values are scaled down: their rounding error would hide a finite difference."""
_MOST_ENTRIES = 64
"""Numbers in all floating inputs together. The Jacobian has that number squared of entries, at two calls each."""


def small_inputs(arguments: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Candidate arguments of increasing size, floating ones in float64. Equal sizes are cut to equal sizes.

    The caller uses the first candidate that the function accepts, because sizes may depend on each other in ways that
    cannot be inferred.
    """
    tensors = [a for a in arguments if isinstance(a, Tensor)]
    sizes = sorted({size for tensor in tensors for size in tensor.shape if size > _SMALL})
    leading = {tensor.shape[0] for tensor in tensors if tensor.ndim > 1 and tensor.shape[0] > 2}
    last = {tensor.shape[-1] for tensor in tensors if tensor.ndim}
    plans = [
        dict.fromkeys(leading - last, 2) | _in_proportion([s for s in sizes if s not in leading - last], base)
        for base in (2, 3, 4)
    ]
    plans += [_in_proportion(sizes, 4), dict.fromkeys(leading - last, 1), {}]
    for plan in plans:
        candidate = tuple(_shrunk(argument, plan, number) for number, argument in enumerate(arguments))
        if sum(a.numel() for a in candidate if isinstance(a, Tensor) and a.is_floating_point()) <= _MOST_ENTRIES:
            yield candidate


def _in_proportion(sizes: list[int], base: int) -> dict[int, int]:
    """The smallest size becomes `base`. Its small multiples stay multiples; each other size becomes a distinct one."""
    plan: dict[int, int] = {}
    for size in sizes:
        ratio = size / sizes[0]
        proportional = base * int(ratio) if ratio.is_integer() and ratio <= 4 else 0
        plan[size] = min(size, proportional or base + 1 + len(plan))
    return plan


def _shrunk(argument: Any, plan: Mapping[int, int], number: int) -> Any:
    if isinstance(argument, Tensor):
        return _shrunk_tensor(argument, plan, number)
    if isinstance(argument, int) and not isinstance(argument, bool):
        return plan.get(argument, argument)
    if isinstance(argument, torch.Size | tuple | list) and all(isinstance(item, int) for item in argument):
        return type(argument)([plan.get(item, item) for item in argument])
    return argument


def _shrunk_tensor(tensor: Tensor, plan: Mapping[int, int], number: int) -> Tensor:
    cut = tensor.detach()[tuple(slice(plan.get(size, size)) for size in tensor.shape)].clone()
    if cut.is_floating_point():
        return _off_the_kinks(cut.double(), number)
    if cut.dtype is torch.bool or not plan:
        return cut
    return cut % min(plan.values())  # an index into a dimension that was cut


def _off_the_kinks(values: Tensor, seed: int) -> Tensor:
    """The same signs and nearly the same values, but no zeros and no ties: there ReLUs and maxima have kinks."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.rand(values.shape, generator=generator, dtype=values.dtype).to(values.device)
    values = values.nan_to_num(0.0, 1.0, -1.0)
    largest = float(values.abs().max()) if values.numel() else 0.0
    if largest > _LARGEST:
        values = values * (_LARGEST / largest)
    return torch.where(values == 0, 0.05 + 0.1 * noise, values * (1 + 0.05 * noise) + values.sign() * 1e-3)
