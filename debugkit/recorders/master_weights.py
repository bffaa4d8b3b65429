"""Float32 master weights: copies that an optimizer steps instead of a model's 16-bit parameters."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

_HALF = (torch.float16, torch.bfloat16)


def masters(parameters: Iterable[Tensor], held: Iterable[Tensor]) -> dict[int, int]:
    """For each 16-bit parameter that is not held, the id() of the held float32 tensor of its shape, by its own id().

    Empty unless every 16-bit parameter that is not held has its own copy: a copy of half a model is a mistake.
    """
    held, own = list(held), list(parameters)
    held_ids, own_ids = ({id(tensor) for tensor in tensors} for tensors in (held, own))
    without = [p for p in own if p.dtype in _HALF and p.requires_grad and id(p) not in held_ids]
    if not without:
        return {}
    free = [tensor for tensor in held if tensor.dtype is torch.float32 and id(tensor) not in own_ids]
    found: dict[int, int] = {}
    for parameter in without:
        match = next((index for index, tensor in enumerate(free) if tensor.shape == parameter.shape), None)
        if match is None:
            return {}
        found[id(parameter)] = id(free.pop(match))
    return found
