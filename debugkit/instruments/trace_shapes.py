"""trace_shapes: a table of what goes in and out of every module; on a forward that raises, where and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from debugkit.measurements.shapes import ModuleCall, ShapeFailure, ShapeTrace, TensorShape
from debugkit.measurements.shapes.measure import ShapeProbe
from debugkit.preserve_state import preserved
from debugkit.setup import LossFn, TrainingSetup
from debugkit.step import quiet_eager

__all__ = ["ModuleCall", "ShapeFailure", "ShapeTrace", "TensorShape", "trace_shapes"]


def trace_shapes(model: nn.Module, batch: Any, loss_fn: LossFn | None = None) -> ShapeTrace:
    """Run one forward pass without gradients and list the input and output shapes of every module.

    The forward pass is `loss_fn(model, batch)` if that is given, else `model(**batch)` for a mapping, `model(*batch)`
    for a tuple or list, and `model(batch)` otherwise. If it raises, the exception is not passed on: `.failure` has the
    module, the size that it expected and received, the module that made the tensor, and the configuration fields that
    hold those sizes.

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 4, stride=4), nn.Flatten(), nn.Linear(100, 2))
    >>> trace = trace_shapes(model, torch.ones(2, 3, 16, 16))
    >>> trace.failure.module, trace.failure.expected, trace.failure.received, trace.failure.producer
    ('2', 100, 128, '0')
    >>> print(trace)
    module  class    in              out           dtype    parameters
    ──────  ───────  ──────────────  ────────────  ───────  ──────────
    0       Conv2d   (2, 3, 16, 16)  (2, 8, 4, 4)  float32  392
    1       Flatten  (2, 8, 4, 4)    (2, 128)      float32  0
    <BLANKLINE>
    Linear `2` raised: RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x128 and 100x2)
      got       (2, 128)
      expected  100
      received  128
      made by   `0`
    """
    setup = TrainingSetup.of(model, batch, loss_fn)
    with preserved(setup), quiet_eager(model), torch.no_grad(), ShapeProbe(setup) as probe:
        try:
            inputs = setup.fresh_batch()
            _ = loss_fn(model, inputs) if loss_fn is not None else _call(model, inputs)
        except Exception as error:
            probe.explain(error)
    return probe.observation


def _call(model: nn.Module, batch: Any) -> Any:
    if isinstance(batch, Mapping) or hasattr(batch, "keys"):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple | list) else model(batch)
