"""What every module gives at chosen positions of a (B, L) text: to name the first place where two passes part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import nn

from debugkit.experiments.passes import distance
from debugkit.structure import tensors_in
from debugkit.subject import Subject


class PositionValues:
    """Listens to all modules while attached; keeps outputs (B, L, D) at the positions that `where` (B, L) marks."""

    def __init__(self, subject: Subject, where: torch.Tensor) -> None:
        self.subject, self.where = subject, where
        self.values: list[tuple[str, torch.Tensor]] = []
        self._handles: list[torch.utils.hooks.RemovableHandle] = []

    def __enter__(self) -> Self:
        for module, path in self.subject.module_paths.items():
            if not isinstance(module, torch.jit.ScriptModule):
                self._handles.append(module.register_forward_hook(self._keep(path)))
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def first_difference(self, other: PositionValues, threshold: float) -> str | None:
        """The first module, in order of execution, whose values differ between the two passes; None if none do."""
        for (path, before), (_, after) in zip(self.values, other.values, strict=False):
            if distance(before, after) > threshold:
                return path
        return None

    def _keep(self, path: str) -> Callable[[nn.Module, Any, Any], None]:
        def keep(_module: nn.Module, _inputs: Any, output: Any) -> None:
            for _, tensor in tensors_in(output):
                if tensor.ndim == 3 and tensor.shape[:2] == self.where.shape and tensor.is_floating_point():
                    self.values.append((path, tensor.detach()[self.where]))

        return keep
