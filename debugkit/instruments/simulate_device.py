"""simulate_device: would this step run on a GPU? Without one."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from debugkit.measurements.second_device import SecondDevice, StrayTensor
from debugkit.measurements.second_device.measure import move_to_second_device
from debugkit.setup import LossFn, TrainingSetup

__all__ = ["SecondDevice", "StrayTensor", "simulate_device"]


def simulate_device(
    model: nn.Module, batch: Any, loss_fn: LossFn | None = None, *, device: str | torch.device | None = None
) -> SecondDevice:
    """Run forward and backward as if the model and the batch were on a GPU, and name each tensor left on the CPU.

    `device` is the device to run on, for example `"cuda:0"`. Without a CUDA device it is simulated: tensors have shapes
    and a device but no values, in a child process, so that a crash stays there. Values that the code reads (`.item()`,
    `if mask.any()`) come from a run on the CPU. Nothing is moved, and `model` stays where it is. If the simulation does
    not support an operation, `not_examined` says which. Casts by autocast are not simulated.

    Raises NotExamined if the step already fails on the CPU or gives no scalar loss.

    >>> class Masked(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.head = nn.Linear(4, 1)
    ...     def forward(self, x):
    ...         keep = torch.ones(x.shape[1])
    ...         return self.head(x * keep).sum()
    >>> seen = simulate_device(Masked(), torch.ones(2, 4), lambda model, batch: model(batch))
    >>> seen.ok, seen.strays[0].operation, seen.strays[0].shape
    (False, 'mul', (4,))
    """
    return move_to_second_device(TrainingSetup.of(model, batch, loss_fn, device=device))
