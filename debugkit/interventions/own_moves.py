"""Tensors that a module moves itself: its `_apply`, which `.to()` and `.float()` call, passes them on."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from debugkit._torch_private import own_apply


def moved_by_apply(model: nn.Module) -> frozenset[int]:
    """The `id` of each tensor, besides parameters and buffers, that a module's own `_apply` moves.

    Calls `_apply` with a function that changes nothing. Run it where the model's attributes are restored.
    """
    moved: set[int] = set()

    def note(tensor: Tensor) -> Tensor:
        moved.add(id(tensor))
        return tensor

    for module in model.modules():
        own = own_apply(module)
        if own is not None:
            with torch.no_grad():
                own(note)
    return frozenset(moved)
