"""Tensors that a module moves itself: its `_apply`, which `.to()` and `.float()` call, passes them on."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def moved_by_apply(model: nn.Module) -> frozenset[int]:
    """The `id` of each tensor, besides parameters and buffers, that a module's own `_apply` moves.

    Calls `_apply` with a function that changes nothing. Run it where the model's attributes are restored.
    """
    moved: set[int] = set()

    def note(tensor: Tensor) -> Tensor:
        moved.add(id(tensor))
        return tensor

    for module in model.modules():
        own = type(module)._apply
        if own is not nn.Module._apply and not own.__module__.startswith("torch."):
            with torch.no_grad():
                module._apply(note)  # type: ignore[no-untyped-call]
    return frozenset(moved)
