"""Copies that are constant on purpose: a target network, a momentum teacher."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

_NAMES = ("target", "ema", "teacher", "momentum", "reference")
# A teacher updated by an exponential average stays at least this close to its student. Two independent
# initialisations have a cosine near 0.
_SAME_WEIGHTS_COSINE = 0.9


def copies_of_trained_modules(model: nn.Module, constant: Mapping[str, nn.Parameter], trained: set[str]) -> set[str]:
    """The parameters, among `constant`, of modules that copy a module whose every parameter is in `trained`.

    A copy has the same parameter names and shapes, and either a name such as `target` or nearly the same weights.
    """
    found: set[str] = set()
    modules = {path: _shapes(module) for path, module in model.named_modules() if path}
    for path, shapes in modules.items():
        own = {f"{path}.{name}" for name in shapes}
        if not shapes or not own <= constant.keys() or own <= found:
            continue
        for other, its_shapes in modules.items():
            theirs = {f"{other}.{name}" for name in its_shapes}
            if its_shapes == shapes and theirs <= trained and _is_copy(model, path, other):
                found |= own
                break
    return found


def _shapes(module: nn.Module) -> dict[str, torch.Size]:
    return {name: p.shape for name, p in module.named_parameters()}


def _is_copy(model: nn.Module, path: str, other: str) -> bool:
    words = path.lower().replace(".", "_").split("_")
    if any(name in words for name in _NAMES):
        return True
    mine, theirs = (_flat(model.get_submodule(p)) for p in (path, other))
    return bool(torch.nn.functional.cosine_similarity(mine, theirs, dim=0) > _SAME_WEIGHTS_COSINE)


def _flat(module: nn.Module) -> torch.Tensor:
    matrices = [p.detach().flatten().double() for p in module.parameters() if p.ndim > 1]
    return torch.cat(matrices or [p.detach().flatten().double() for p in module.parameters()])
