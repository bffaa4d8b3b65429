"""Copies of a trainable module: its moving average, a momentum encoder, a target network."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn


def has_trainable_twin(module: nn.Module, model: nn.Module) -> bool:
    """Whether a trainable module of the same type and shapes exists. The module is then its moving average."""
    return next(trainable_twins(module, model), None) is not None


def trainable_twins(module: nn.Module, model: nn.Module) -> Iterator[nn.Module]:
    """The trainable modules of the same type, with parameters of the same shapes in the same order."""
    shapes = [parameter.shape for parameter in module.parameters()]
    for other in model.modules():
        if (
            other is not module
            and type(other) is type(module)
            and [parameter.shape for parameter in other.parameters()] == shapes
            and any(parameter.requires_grad for parameter in other.parameters())
        ):
            yield other
