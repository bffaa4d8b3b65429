"""A number for the bits of a tensor, computed on its device: equal tensors have equal numbers on every rank."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_ODD = 2654435761  # Knuth's multiplier: the weights of neighbouring elements differ in every bit


@torch.no_grad()
def digests(tensors: Iterable[Tensor]) -> list[int]:
    """A 64-bit number for each tensor, with one transfer from each device. NaNs are equal if their bits are equal."""
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
    return (bits * (weights ^ (weights >> 15))).sum()  # an overflow wraps around in the same way on every device
