"""A number for the bits of a tensor, computed on its device: equal tensors have equal numbers on every rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_ODD = 2654435761  # Knuth's multiplier: the weights of neighbouring elements differ in every bit


def digests(tensors: Iterable[Tensor]) -> list[int]:
    """A 64-bit number for each tensor, with one transfer from each device. NaNs are equal if their bits are equal."""
    return read_digests([digest(tensor) for tensor in tensors])


@torch.no_grad()
def digest(tensor: Tensor) -> Tensor:
    """The number of one tensor, still on its device: nothing waits for it."""
    flat = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
    flat = flat.contiguous().reshape(-1)
    bits = flat.view(_INTEGERS[flat.element_size()]).to(torch.int64)
    weights = torch.arange(1, bits.numel() + 1, device=bits.device) * _ODD
    return (bits * (weights ^ (weights >> 15))).sum()  # an overflow wraps around in the same way on every device


def read_digests(values: Sequence[Tensor]) -> list[int]:
    """The numbers, with one transfer from each device."""
    numbers = [0] * len(values)
    for device in {value.device for value in values}:
        places = [place for place, value in enumerate(values) if value.device == device]
        for place, number in zip(places, torch.stack([values[place] for place in places]).tolist(), strict=True):
            numbers[place] = number
    return numbers
