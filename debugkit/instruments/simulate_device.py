"""simulate_device: would this step run on a GPU? Without one."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from debugkit.experiments.second_device import move_to_second_device
from debugkit.observations.second_device import SecondDevice
from debugkit.subject import LossFn, Subject


def simulate_device(
    model: nn.Module, batch: Any, loss_fn: LossFn | None = None, *, device: str | torch.device | None = None
) -> SecondDevice:
    """Run forward and backward as if the model and the batch were on a GPU, and name each tensor left on the CPU.

    Where there is no CUDA device the second device is pretended: tensors with shapes and a device, without values, in a
    child process that a crash cannot leave. Values the code reads (`.item()`, `if mask.any()`) are those of a run
    on the CPU. Nothing is moved for real, and `model` stays where it is. An operation the pretended device cannot do
    is said in `not_examined`; autocast's casts are not simulated.

    Raises NotExamined, in one sentence, if the step fails on the CPU already or gives no scalar loss.

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
    return move_to_second_device(Subject.of(model, batch, loss_fn, device=device))
