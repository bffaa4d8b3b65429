"""first_nonfinite: which operation makes the first NaN or Inf of a training step, forward or backward."""

from __future__ import annotations

from typing import Any

from torch import nn

from debugkit.experiments.trace_nonfinite import trace_nonfinite
from debugkit.observations.nonfinite import NonfiniteOrigin
from debugkit.restore import restored
from debugkit.step import quiet_eager
from debugkit.subject import LossFn, Subject


def first_nonfinite(model: nn.Module, batch: Any, loss_fn: LossFn | None = None) -> NonfiniteOrigin | None:
    """The operation that makes the first non-finite value of one step, or None where every value is finite.

    `loss_fn(model, batch)` returns a scalar; by default it is `model(**batch).loss`. The step is run once to see
    whether anything is wrong, and again per operation if so; model and random numbers are afterwards what they were.
    Masks of -Inf that were put in place are not faults. Raises NotExamined, in one sentence, without a scalar loss.

    >>> class Distance(nn.Module):
    ...     def forward(self, x):
    ...         return x.pow(2).sum(-1).sqrt()
    >>> import torch
    >>> model = nn.Sequential(nn.Linear(2, 2, bias=False), Distance())
    >>> origin = first_nonfinite(model, torch.zeros(1, 2), lambda model, batch: model(batch).sum())
    >>> origin.operation, origin.kind, origin.inputs, origin.module
    ('SqrtBackward0', 'Inf', 'finite', '1')
    """
    subject = Subject.of(model, batch, loss_fn)
    with restored(subject), quiet_eager(model):
        found = trace_nonfinite(subject)
    return found.forward or found.gradient
