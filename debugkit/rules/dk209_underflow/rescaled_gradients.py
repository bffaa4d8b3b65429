"""Runs the step of a float16 model twice: with the plain loss, and with the loss scaled up."""

from __future__ import annotations

import torch
from torch import Tensor

from debugkit.finding import NotExamined
from debugkit.randomness import same_randomness
from debugkit.rules.dk209_underflow import RescaledGradient, RescaledGradients
from debugkit.setup import TrainingSetup

_SCALES = (2.0**14, 2.0**7)  # the first one at which nothing overflows is used
_SMALLEST_NORMAL = torch.finfo(torch.float16).tiny


def rescale_the_loss(setup: TrainingSetup) -> RescaledGradients:
    """Which gradient values are zero or subnormal only because the loss is not scaled. Raises NotExamined."""
    parameters = {name: p for name, p in setup.model.named_parameters() if p.requires_grad and p.dtype is torch.float16}
    if not parameters:
        raise NotExamined("No trainable parameter is float16.")
    plain = _gradients(setup, parameters, 1.0)
    for scale in _SCALES:
        scaled = _gradients(setup, parameters, scale)
        if all(bool(torch.isfinite(gradient).all()) for gradient in scaled.values()):
            return _compare(plain, scaled, scale)
    return RescaledGradients(_SCALES[-1], ())  # gradients overflow at every scale, so none is too small


def _gradients(setup: TrainingSetup, parameters: dict[str, torch.nn.Parameter], scale: float) -> dict[str, Tensor]:
    with same_randomness():
        loss = setup.loss()
    if not loss.requires_grad:
        raise NotExamined("The loss has no gradient.")
    seed = torch.full_like(loss, scale)  # multiplying the loss itself could overflow
    found = torch.autograd.grad(loss, list(parameters.values()), seed, allow_unused=True)
    return {
        name: gradient
        for name, gradient in zip(parameters, found, strict=True)
        if gradient is not None and gradient.layout is torch.strided
    }


def _compare(plain: dict[str, Tensor], scaled: dict[str, Tensor], scale: float) -> RescaledGradients:
    gradients = []
    for name, gradient in scaled.items():
        there, size = gradient != 0, plain[name].abs()
        zero = int((there & (size == 0)).sum())
        subnormal = int((there & (size > 0) & (size < _SMALLEST_NORMAL)).sum())
        gradients.append(RescaledGradient(name, int(there.sum()), zero, subnormal))
    if not gradients:
        raise NotExamined("No float16 parameter receives a gradient.")
    return RescaledGradients(scale, tuple(gradients))
