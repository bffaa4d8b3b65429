"""Assertions about a model for your own test suite. A failed assertion shows what debugkit found.

    def test_the_policy_learns(assert_overfits):
        assert_overfits(policy, batch, loss_fn)

pytest loads the plugin automatically once debugkit is installed. If plugin autoload is disabled, pass
`-p debugkit.integrations.pytest_plugin`. You can also import the functions from this module. torch is not imported
before the first of them runs.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import torch
    from torch import nn

    from debugkit.declare import Declare
    from debugkit.setup import LossFn


def assert_silent(
    model: nn.Module,
    batch: Any = None,
    loss_fn: LossFn | None = None,
    optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
    *,
    dataloader: Iterable[Any] | Mapping[str, Iterable[Any]] | None = None,
    select: str | Sequence[str] | None = None,
    ignore: str | Sequence[str] | Mapping[str, str] | None = None,
    declare: Declare | None = None,
) -> None:
    """Assert that `debugkit.check` reports no error and no warning. The model is not changed.

    If `select` contains the full code of a rule, that rule must have been examined. Otherwise the assertion would also
    pass if the rule was not examined, for example because no batch was given. Raises AssertionError with the report,
    and SetupError and UnknownCodeError as `debugkit.check` does.
    """
    __tracebackhide__ = True
    from debugkit.preflight import check
    from debugkit.rule import codes_in

    report = check(
        model, batch, loss_fn, optimizer, dataloader=dataloader, select=select, ignore=ignore, declare=declare
    )
    if not report.ok:
        raise AssertionError(f"debugkit is not silent on {type(model).__name__}.\n\n{report}")
    asked = {code.upper() for code in (codes_in(select) or ())}
    unseen = [f"  {entry.code}  {entry.why}" for entry in report.not_examined if entry.code in asked]
    if unseen:
        raise AssertionError("\n".join(["debugkit could not examine what select= names.", *unseen]))


def assert_overfits(
    model: nn.Module,
    batch: Any,
    loss_fn: LossFn | None = None,
    *,
    steps: int = 100,
    learning_rate: float = 1e-3,
    threshold: float = 0.1,
    seed: int = 0,
) -> None:
    """Assert that the model overfits one batch: its loss falls below `threshold` times the initial loss.

    The model is not changed. Raises AssertionError with the loss curve and the list of suspects of
    `debugkit.overfit_one_batch`, and NotExamined without a scalar loss.
    """
    __tracebackhide__ = True
    from debugkit.instruments.overfit_one_batch import overfit_one_batch

    result = overfit_one_batch(
        model, batch, loss_fn, steps=steps, learning_rate=learning_rate, threshold=threshold, seed=seed
    )
    if not result:
        raise AssertionError(
            f"{type(model).__name__} does not overfit one batch: expected {threshold:g} of the initial loss, "
            f"got {result.losses[-1] / result.losses[0]:.3g}.\n\n{result}"
        )


def assert_gradients_reach(model: nn.Module, batch: Any, *patterns: str, loss_fn: LossFn | None = None) -> None:
    """Assert that each parameter that matches a shell-style pattern gets a finite gradient that is not all zero.

    Without patterns, this applies to every trainable parameter. The model is not changed. Raises AssertionError with
    the names of the parameters that fail and, if the graph is cut, the line that cuts it. Raises NotExamined without
    a scalar loss.
    """
    __tracebackhide__ = True
    from debugkit.instruments.gradient_table import GradientTable, gradient_table

    rows = gradient_table(model, batch, loss_fn).rows
    nothing = [pattern for pattern in patterns if not any(fnmatch.fnmatchcase(row.parameter, pattern) for row in rows)]
    if nothing:
        names = ", ".join(dict.fromkeys(row.parameter.partition(".")[0] for row in rows))
        raise AssertionError(f"No parameter's name matches {', '.join(map(repr, nothing))}; they begin with {names}.")
    meant = [
        row
        for row in rows
        if any(fnmatch.fnmatchcase(row.parameter, pattern) for pattern in patterns)
        or (not patterns and row.state != "frozen")
    ]
    left_out = [row for row in meant if row.state != "ok"]
    if left_out:
        raise AssertionError(
            f"The gradient reaches {len(meant) - len(left_out)} of {len(meant)} parameters.\n\n"
            f"{GradientTable(tuple(left_out))}{_cut(model, batch, loss_fn)}"
        )


def _cut(model: nn.Module, batch: Any, loss_fn: LossFn | None) -> str:
    """The place where the graph is cut, if it is. A gradient can also be zero, or disabled, without a cut."""
    from debugkit.finding import NotExamined
    from debugkit.measurements.graph_cut.search import find_graph_cut

    try:
        cut = find_graph_cut(model, batch, loss_fn)
    except NotExamined:
        return ""
    return f"\n\n{cut}" if cut else ""


@pytest.fixture(name="assert_silent", scope="session")
def _assert_silent() -> Callable[..., None]:
    """`assert_silent(model, batch, loss_fn, select=…, ignore=…)`: debugkit.check reports no error and no warning."""
    return assert_silent


@pytest.fixture(name="assert_overfits", scope="session")
def _assert_overfits() -> Callable[..., None]:
    """`assert_overfits(model, batch, loss_fn, steps=100)`: the model overfits one batch."""
    return assert_overfits


@pytest.fixture(name="assert_gradients_reach", scope="session")
def _assert_gradients_reach() -> Callable[..., None]:
    """`assert_gradients_reach(model, batch, "vision.*")`: the matching parameters get a gradient."""
    return assert_gradients_reach
