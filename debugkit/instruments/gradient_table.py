"""gradient_table: the gradient of every parameter in one table, from the input to the output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from debugkit.plain_data import PlainData
from debugkit.preserve_state import preserved
from debugkit.setup import LossFn, TrainingSetup
from debugkit.step import quiet_eager

State = Literal["ok", "none", "zero", "nonfinite", "frozen"]
"""none: no gradient, the graph does not reach the parameter. zero: exactly 0. frozen: `requires_grad` is False."""


@dataclass(frozen=True)
class GradientRow(PlainData):
    """The gradient of one parameter; the numbers are None without a gradient.

    `norm` is its 2-norm, `largest` its largest absolute value, `zeros` the share of entries that are exactly 0 (0 to
    1), and `relative` the norm divided by the norm of the weight.
    """

    parameter: str
    shape: tuple[int, ...]
    state: State
    norm: float | None
    largest: float | None
    zeros: float | None
    relative: float | None


@dataclass(frozen=True)
class GradientTable(PlainData):
    """The result of `gradient_table`: a row for each parameter, in the order of the model; prints as a table."""

    rows: tuple[GradientRow, ...]

    def without_gradient(self) -> tuple[str, ...]:
        """Trainable parameters whose gradient is None, zero or not finite."""
        return tuple(row.parameter for row in self.rows if row.state not in ("ok", "frozen"))

    def __str__(self) -> str:
        width = max((len(row.parameter) for row in self.rows), default=0)
        shapes = max((len(_shape(row.shape)) for row in self.rows), default=0)
        head = f"{'parameter':{width}}  {'shape':{shapes}}  state      norm      largest   zeros  grad/weight"
        return "\n".join([head, *(_line(row, width, shapes) for row in self.rows)])


def gradient_table(model: nn.Module, batch: Any = None, loss_fn: LossFn | None = None) -> GradientTable:
    """Tabulate the gradients that are in `.grad` now or, with `batch`, those of one forward and backward pass on it.

    `loss_fn(model, batch)` returns a scalar tensor; the default is `model(**batch).loss`. With `batch`, the model, its
    gradients and all random number generators are restored.

    Raises NotExamined if there is no scalar loss.

    >>> model = nn.Sequential(nn.Linear(2, 1, bias=False), nn.Linear(1, 1, bias=False))
    >>> table = gradient_table(model, torch.ones(1, 2), lambda model, batch: model[1](model[0](batch).detach()).sum())
    >>> [(row.parameter, row.state) for row in table.rows]
    [('0.weight', 'none'), ('1.weight', 'ok')]
    """
    if batch is None:
        return _table(model)
    setup = TrainingSetup.of(model, batch, loss_fn)
    with preserved(setup), quiet_eager(model):
        setup.loss().backward()  # type: ignore[no-untyped-call]
        return _table(model)


def _table(model: nn.Module) -> GradientTable:
    with torch.no_grad():
        return GradientTable(tuple(_row(name, parameter) for name, parameter in model.named_parameters()))


def _row(name: str, parameter: nn.Parameter) -> GradientRow:
    shape, gradient = tuple(parameter.shape), parameter.grad
    if gradient is None or gradient.numel() == 0:
        state: State = "none" if parameter.requires_grad else "frozen"
        return GradientRow(name, shape, state, None, None, None, None)
    values = _dense(gradient).double()
    largest = float(values.abs().max()) if values.numel() else 0.0
    norm = float(torch.linalg.vector_norm(values))
    weight = float(torch.linalg.vector_norm(parameter.double()))
    finite = bool(torch.isfinite(values).all())
    return GradientRow(
        parameter=name,
        shape=shape,
        state="nonfinite" if not finite else "zero" if largest == 0.0 else "ok",
        norm=norm,
        largest=largest,
        zeros=1.0 - float(torch.count_nonzero(values)) / gradient.numel(),
        relative=norm / weight if weight > 0.0 else None,
    )


def _dense(gradient: Tensor) -> Tensor:
    return gradient.coalesce().values() if gradient.is_sparse else gradient


def _line(row: GradientRow, width: int, shapes: int) -> str:
    numbers = "  ".join(
        f"{value:{form}}" if value is not None else f"{'–':>{size}}"
        for value, form, size in (
            (row.norm, "9.2e", 9),
            (row.largest, "9.2e", 9),
            (row.zeros, "6.1%", 6),
            (row.relative, "9.2e", 9),
        )
    )
    return f"{row.parameter:{width}}  {_shape(row.shape):{shapes}}  {row.state:9}  {numbers}".rstrip()


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "scalar"
