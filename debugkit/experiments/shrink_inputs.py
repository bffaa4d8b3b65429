"""Small inputs for a function, cut from real ones, so that its whole Jacobian can be measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

_SMALL = 4
"""A size up to this stays as it is."""
_LARGEST = 10.0
"""Values beyond are scaled down: their rounding would drown a finite difference."""
_MOST_ENTRIES = 64
"""Numbers in all floating inputs together; the Jacobian has its square of entries, each two calls."""


def small_inputs(arguments: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Arguments of ever larger size, floating ones in float64, all cut alike where they shared a size.

    Whoever asks takes the first that the function accepts: sizes may be tied to each other in ways no tool can see.
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
    """The smallest size becomes `base`; its small multiples stay multiples, others get a number of their own."""
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
    return cut % min(plan.values())  # an index into something that has become smaller


def _off_the_kinks(values: Tensor, seed: int) -> Tensor:
    """The same signs and about the same values, but no zero and no two alike: there ReLUs and maxima have edges."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.rand(values.shape, generator=generator, dtype=values.dtype).to(values.device)
    values = values.nan_to_num(0.0, 1.0, -1.0)
    largest = float(values.abs().max()) if values.numel() else 0.0
    if largest > _LARGEST:
        values = values * (_LARGEST / largest)
    return torch.where(values == 0, 0.05 + 0.1 * noise, values * (1 + 0.05 * noise) + values.sign() * 1e-3)
