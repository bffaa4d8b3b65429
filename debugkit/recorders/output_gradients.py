"""How strongly the loss depends on a model's output at each of its positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from debugkit.structure import tensors_in


class OutputGradients:
    """Receives the gradient of each (B, L, D) tensor of an output in the backward passes that follow."""

    def __init__(self) -> None:
        self.norms: dict[str, Tensor] = {}
        """By the tensor's path: (B, L) norms of the gradient, the largest of all passes. Without it: no backward."""

    def observe(self, output: Any) -> None:
        """Observe the tensors of one call's output. The hooks go with the tensors."""
        for path, tensor in tensors_in(output):
            if tensor.ndim == 3 and tensor.requires_grad and tensor.is_floating_point():
                tensor.register_hook(self._receiver(path))  # type: ignore[no-untyped-call]

    def add(self, path: str, gradient: Tensor) -> None:
        """Add the gradient of one pass. One that is not finite, as with too large a loss scale, is left out."""
        norms = torch.linalg.vector_norm(gradient.detach().float(), dim=2)
        if math.isfinite(float(norms.sum())):
            self.norms[path] = norms.maximum(self.norms[path]) if path in self.norms else norms

    def _receiver(self, path: str) -> Callable[[Tensor], None]:
        return lambda gradient: self.add(path, gradient)
