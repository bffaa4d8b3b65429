"""One number for the bits of a tensor, computed where the tensor is: equal tensors have equal numbers on every rank."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_ODD = 2654435761  # Knuth's multiplier: neighbours get weights that differ in every bit


@torch.no_grad()
def digests(tensors: Iterable[Tensor]) -> list[int]:
    """A 64-bit number for each tensor; one transfer from each device. Two ranks' NaNs are equal if their bits are."""
    values = [_digest(tensor.detach()) for tensor in tensors]
    numbers = [0] * len(values)
    for device in {value.device for value in values}:
        places = [place for place, value in enumerate(values) if value.device == device]
        for place, number in zip(places, torch.stack([values[place] for place in places]).tolist(), strict=True):
            numbers[place] = number
    return numbers


def _digest(tensor: Tensor) -> Tensor:
    flat = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    flat = flat.contiguous().reshape(-1)
    bits = flat.view(_INTEGERS[flat.element_size()]).to(torch.int64)
    weights = torch.arange(1, bits.numel() + 1, device=bits.device) * _ODD
    return (bits * (weights ^ (weights >> 15))).sum()  # wraps around, the same everywhere
