"""Opening zero-initialised layers and gates for a while: until it trains, one hides all that stands before it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

_SMALL = 1e-2


@contextlib.contextmanager
def open_gates(model: nn.Module) -> Iterator[None]:
    """Small values in parameters that are entirely zero: such a layer or gate hides what stands before it."""
    closed = [parameter for parameter in model.parameters() if parameter.is_floating_point() and not parameter.any()]
    originals = [parameter.data for parameter in closed]
    generator = torch.Generator().manual_seed(0)
    try:
        for parameter in closed:
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.data = (_SMALL * noise).to(parameter.device, parameter.dtype)
        yield
    finally:
        for parameter, original in zip(closed, originals, strict=True):
            parameter.data = original
