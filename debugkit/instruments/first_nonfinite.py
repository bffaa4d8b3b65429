"""first_nonfinite: which operation makes the first NaN or Inf of a training step, forward or backward."""

from __future__ import annotations

from typing import Any

from torch import nn

from debugkit.measurements.nonfinite.measure import trace_nonfinite
from debugkit.preserve_state import preserved
from debugkit.setup import LossFn, TrainingSetup
from debugkit.step import quiet_eager
from debugkit.step_replay.nonfinite import Extremes, Frame, NonfiniteOrigin

__all__ = ["Extremes", "Frame", "NonfiniteOrigin", "first_nonfinite"]


def first_nonfinite(model: nn.Module, batch: Any, loss_fn: LossFn | None = None) -> NonfiniteOrigin | None:
    """Find the operation that makes the first NaN or Inf of one step, forward or backward; None if all is finite.

    `loss_fn(model, batch)` returns a scalar tensor; the default is `model(**batch).loss`. The step runs once to see
    whether anything is wrong, and if so again, operation by operation. The model and all random number generators are
    restored. Masks of -Inf that were set on purpose are no fault.

    Raises NotExamined if there is no scalar loss.

    >>> class Distance(nn.Module):
    ...     def forward(self, x):
    ...         return x.pow(2).sum(-1).sqrt()
    >>> import torch
    >>> model = nn.Sequential(nn.Linear(2, 2, bias=False), Distance())
    >>> origin = first_nonfinite(model, torch.zeros(1, 2), lambda model, batch: model(batch).sum())
    >>> origin.operation, origin.kind, origin.inputs, origin.module
    ('SqrtBackward0', 'Inf', 'finite', '1')
    """
    setup = TrainingSetup.of(model, batch, loss_fn)
    with preserved(setup), quiet_eager(model):
        found = trace_nonfinite(setup)
    return found.forward or found.gradient
