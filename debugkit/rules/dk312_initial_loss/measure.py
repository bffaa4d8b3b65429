"""Searches for signs that the weights were loaded or trained, without a forward pass."""

from __future__ import annotations

from torch import nn

from debugkit.rules.dk312_initial_loss import TrainingHistory
from debugkit.setup import TrainingSetup


def look_for_training(setup: TrainingSetup) -> TrainingHistory:
    """The first sign found. One of them: the weights of a norm layer start equal, and training makes them differ."""
    for optimizer in setup.optimizers:
        if any(optimizer.state.values()):
            return TrainingHistory("the optimizer has taken steps")
    for module, path in setup.module_paths.items():
        config = getattr(module, "config", None)
        if getattr(config, "_name_or_path", ""):
            return TrainingHistory(f"{path or 'the model'} was loaded from {getattr(config, '_name_or_path', '')!r}")
        if _is_trained_norm(module):
            return TrainingHistory(f"the weights of {path} differ from each other")
    return TrainingHistory(None)


def _is_trained_norm(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    if "norm" not in type(module).__name__.lower() or not isinstance(weight, nn.Parameter) or weight.is_meta:
        return False
    return weight.ndim == 1 and weight.numel() > 1 and bool((weight != weight[0]).any())
