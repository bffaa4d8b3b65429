"""The norms of an optimizer's gradients: scalars on the device at first, named numbers after the transfer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer

from debugkit._torch_private import norms, parts_of_sparse
from debugkit.held_parameters import held_parameters
from debugkit.recorders.timeline import describe_kind, has_range


class GradientReading:
    """The dense gradients that `optimizer` will use in its next step; `names` maps id(parameter) to its path."""

    def __init__(self, optimizer: Optimizer, names: Mapping[int, str]) -> None:
        parameters = {id(p): p for p in held_parameters(optimizer) if p.grad is not None}
        self._gradients = [
            (names.get(key, f"parameter {index}"), gradient)
            for index, (key, p) in enumerate(parameters.items())
            if (gradient := _values(p.grad)) is not None
        ]

    @property
    def count(self) -> int:
        """The number of gradients."""
        return len(self._gradients)

    def scalars(self) -> list[Tensor]:
        """The L2 norm of each gradient, on its device."""
        gradients = [gradient for _, gradient in self._gradients]
        if len({(gradient.device, gradient.dtype) for gradient in gradients}) <= 1:
            return norms(gradients)
        return [torch.linalg.vector_norm(gradient) for gradient in gradients]

    def named(self, norms: Sequence[float]) -> tuple[tuple[str, float], ...]:
        """The norms after the transfer, with the paths of their parameters."""
        return tuple((name, norm) for (name, _), norm in zip(self._gradients, norms, strict=True))

    def nonfinite(self, norms: Sequence[float]) -> dict[str, str]:
        """Parameter path → NaN or Inf. A norm can overflow with finite values, so each suspect is checked itself."""
        suspects = [entry for entry, norm in zip(self._gradients, norms, strict=True) if not math.isfinite(norm)]
        kinds = {name: describe_kind(gradient) for name, gradient in suspects}
        return {name: "NaN" if kind == "NaN" else "Inf" for name, kind in kinds.items() if kind is not None}


def _values(gradient: Tensor | None) -> Tensor | None:
    if gradient is None:
        return None
    values = gradient.detach()
    if values.is_sparse:
        _, values = parts_of_sparse(values)
    return values if has_range(values) else None
