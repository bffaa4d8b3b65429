"""Float32 copies that an optimizer steps in place of a model's 16-bit parameters, as pure half precision has them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

_HALF = (torch.float16, torch.bfloat16)


def masters(parameters: Iterable[Tensor], held: Iterable[Tensor]) -> dict[int, int]:
    """For each 16-bit parameter that nobody holds, the id() of the held float32 tensor of its shape, by its own id().

    Empty unless every 16-bit parameter that nobody holds has a copy of its own: a copy of half a model is a mistake.
    """
    held, own = list(held), list(parameters)
    ids = {id(tensor) for tensor in held}
    wanting = [p for p in own if p.dtype in _HALF and p.requires_grad and id(p) not in ids]
    if not wanting:
        return {}
    known = {id(parameter) for parameter in own}
    free = [tensor for tensor in held if tensor.dtype is torch.float32 and id(tensor) not in known]
    found: dict[int, int] = {}
    for parameter in wanting:
        match = next((index for index, tensor in enumerate(free) if tensor.shape == parameter.shape), None)
        if match is None:
            return {}
        found[id(parameter)] = id(free.pop(match))
    return found
