"""The outputs of every module at chosen positions of a (B, L) text, to find the first module whose outputs differ."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import nn

from debugkit.interventions.passes import distance
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in


class PositionValues:
    """Records the outputs (B, L, D) of all modules at the positions that the mask `where` (B, L) selects."""

    def __init__(self, setup: TrainingSetup, where: torch.Tensor) -> None:
        self.setup, self.where = setup, where
        self.values: list[tuple[str, torch.Tensor]] = []
        self._calls = ModuleCalls(setup.named_modules, after=self._keep)

    def __enter__(self) -> Self:
        self._calls.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.remove()

    def first_difference(self, other: PositionValues, threshold: float) -> str | None:
        """The first module, in order of execution, whose values differ between the two passes; None if none differs."""
        for (path, before), (_, after) in zip(self.values, other.values, strict=False):
            if distance(before, after) > threshold:
                return path
        return None

    def _keep(self, path: str, _module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> None:
        for _, tensor in tensors_in(output):
            if tensor.ndim == 3 and tensor.shape[:2] == self.where.shape and tensor.is_floating_point():
                self.values.append((path, tensor.detach()[self.where]))
