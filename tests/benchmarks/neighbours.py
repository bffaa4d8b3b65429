"""What debugkit and other tools report on the same wrong and right programs; writes docs/_compare.json.

    python -m pip install --no-deps torch-audit==0.3.0 torchtest2==0.1.0 pytest-torch==1.1.1 guardtower==0.1.0
    python tests/benchmarks/neighbours.py     # about 20 CPU seconds

A tool finds a fault if it reports something on the wrong program, in the call that its documentation shows first, that
it does not report on the right one. What it reports on the right one as a warning or worse is written as well. All
faults are among those that debugkit has a rule for: others would favour other tools.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.metadata
import io
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import debugkit

OUT = Path(__file__).resolve().parents[2] / "docs" / "_compare.json"
ROWS = 16


@dataclass
class Program:
    """One model with its batch, loss and optimizer, and the step that its loop makes."""

    model: nn.Module
    x: Tensor
    y: Tensor
    loss: Callable[[Any, Any], Tensor]
    optimizer: torch.optim.Optimizer
    zero: bool = True

    def step(self) -> None:
        if self.zero:
            self.optimizer.zero_grad()
        self.loss(self.model(self.x), self.y).backward()
        self.optimizer.step()


class Net(nn.Module):
    """Two layers; `hidden` is called between them."""

    def __init__(self, hidden: Callable[[Tensor], Tensor] = torch.tanh, outputs: int = 2) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 16), nn.Linear(16, outputs)
        self.hidden = hidden

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.hidden(self.body(x)))


def program(model: nn.Module, *, lr: float = 1e-2, **more: Any) -> Program:
    batch = {"x": torch.randn(ROWS, 6), "y": torch.randn(ROWS, 2), "loss": F.mse_loss}
    return Program(model, **{"optimizer": torch.optim.AdamW(model.parameters(), lr=lr), **batch, **more})


def graph_cut(wrong: bool) -> Program:
    return program(Net(lambda h: h.tanh().detach() if wrong else h.tanh()))


def parameter_not_in_optimizer(wrong: bool) -> Program:
    model = Net()
    chosen = model.head.parameters() if wrong else model.parameters()
    return program(model, optimizer=torch.optim.AdamW(chosen, lr=1e-2))


def head_replaced_after_the_optimizer(wrong: bool) -> Program:
    made = program(Net())
    made.model.head = nn.Linear(16, 2)
    if not wrong:
        made.optimizer = torch.optim.AdamW(made.model.parameters(), lr=1e-2)
    return made


def layer_never_called(wrong: bool) -> Program:
    model = Net()
    if wrong:
        model.norm = nn.LayerNorm(16)
    return program(model)


def learning_rate_of_zero(wrong: bool) -> Program:
    return program(Net(), lr=0.0 if wrong else 1e-2)


def gradients_never_cleared(wrong: bool) -> Program:
    return program(Net(), zero=not wrong)


def loss_that_broadcasts(wrong: bool) -> Program:
    def loss(output: Tensor, y: Tensor) -> Tensor:
        return (output - y if wrong else output.squeeze(-1) - y).square().mean()

    return program(Net(outputs=1), y=torch.randn(ROWS), loss=loss)


def softmax_before_cross_entropy(wrong: bool) -> Program:
    model = nn.Sequential(Net(outputs=5), nn.Softmax(-1)) if wrong else nn.Sequential(Net(outputs=5))
    return program(model, y=torch.randint(0, 5, (ROWS,)), loss=F.cross_entropy)


def samples_mixed(wrong: bool) -> Program:
    return program(Net(lambda h: h.softmax(0) * 8 if wrong else h.softmax(-1) * 8))


def dropout_in_evaluation(wrong: bool) -> Program:
    made = program(Net())
    made.model.hidden = lambda h: F.dropout(h.tanh(), 0.2, training=True if wrong else made.model.training)
    return made


def frozen_statistics_move(wrong: bool) -> Program:
    tower = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)).requires_grad_(False)
    tower.train(wrong)
    if not wrong:
        tower.train = lambda mode=True: tower  # type: ignore[method-assign]
    model = nn.Sequential(tower, Net())
    return program(model, optimizer=torch.optim.AdamW(model[1].parameters(), lr=1e-2))


def dead_units(wrong: bool) -> Program:
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
    nn.init.constant_(model[0].bias, -30.0 if wrong else 0.0)
    return program(model)


def nan_in_the_forward_pass(wrong: bool) -> Program:
    class Scaled(Net):
        def __init__(self, spread: Tensor) -> None:
            super().__init__()
            self.register_buffer("spread", spread)

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x / self.spread)

    x = torch.randn(ROWS, 6)
    x[:, 1] = 0.0
    spread = x.std(0)
    return program(Scaled(spread if wrong else spread.where(spread > 0, 1.0)), x=x)


def infinite_gradient(wrong: bool) -> Program:
    def loss(output: Tensor, y: Tensor) -> Tensor:
        squared = (output - output.detach()).square().sum(-1)
        return (squared if wrong else squared + 1e-6).sqrt().mean() + F.mse_loss(output, y)

    return program(Net(), loss=loss)


class Gate(torch.autograd.Function):
    """x · sigmoid(x), with the right derivative or without its second term."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, wrong: bool) -> Tensor:
        ctx.save_for_backward(x)
        ctx.wrong = wrong
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        share = x.sigmoid()
        slope = share if ctx.wrong else share + x * share * (1 - share)
        return gradients[0] * slope, None


def wrong_derivative(wrong: bool) -> Program:
    return program(Net(lambda h: Gate.apply(h, wrong)))


FAULTS: dict[str, Callable[[bool], Program]] = {
    "a `detach()` cuts the graph": graph_cut,
    "a parameter is in no optimizer": parameter_not_in_optimizer,
    "the head is replaced after the optimizer was built": head_replaced_after_the_optimizer,
    "a layer is never called": layer_never_called,
    "the learning rate is 0": learning_rate_of_zero,
    "`zero_grad()` is missing": gradients_never_cleared,
    "the loss broadcasts (16, 1) with (16,)": loss_that_broadcasts,
    "softmax before cross-entropy": softmax_before_cross_entropy,
    "softmax over the batch": samples_mixed,
    "dropout stays on in evaluation": dropout_in_evaluation,
    "statistics of a frozen BatchNorm change": frozen_statistics_move,
    "a ReLU layer is dead": dead_units,
    "NaN in the forward pass": nan_in_the_forward_pass,
    "infinite gradient": infinite_gradient,
    "a custom backward is wrong": wrong_derivative,
}


def with_debugkit(made: Program) -> Iterator[str]:
    loss = made.loss
    examined = debugkit.check(made.model, (made.x, made.y), lambda m, b: loss(m(b[0]), b[1]), made.optimizer)
    with debugkit.watch(made.model, made.optimizer) as run:
        for _ in range(5):
            made.step()
    for finding in (*examined.findings, *run.report.findings):
        if str(finding.severity) != "info":
            yield finding.code


def with_torch_audit(made: Program) -> Iterator[str]:
    from torch_audit import autopatch

    auditor = autopatch(made.model, optimizer=made.optimizer, every_n_steps=1, run_static=True, run_init=True)
    for _ in range(5):
        made.step()
    result = auditor.finish(report=False)
    auditor.unpatch()
    yield from (finding.rule_id for finding in result.findings if finding.severity.value != "INFO")


def with_torchtest2(made: Program) -> Iterator[str]:
    import torchtest2

    report = torchtest2.check_model(made.model, made.x, made.y, loss_fn=made.loss, optimizer=made.optimizer)
    yield from (result.name for result in report.results if result.status.name in ("FAIL", "WARN"))


def with_guardtower(made: Program) -> Iterator[str]:
    import guardtower

    report = guardtower.audit(
        made.model, lambda: made.loss(made.model(made.x), made.y), optimizer=made.optimizer, inputs=made.x
    )
    yield from (finding.check for finding in (*report.errors, *report.warnings))


def with_pytest_torch(made: Program) -> Iterator[str]:
    from pytest_torch import assert_all_params_receive_grad, assert_gradients_finite, check_inference_contract

    served = copy.deepcopy(made.model).eval()
    calls: dict[str, Callable[[], object]] = {
        "check_inference_contract": lambda: check_inference_contract(served, made.x),
        "assert_all_params_receive_grad": lambda: assert_all_params_receive_grad(
            made.model, made.x, loss_fn=lambda output: made.loss(output, made.y)
        ),
        "assert_gradients_finite": lambda: assert_gradients_finite(
            made.model, made.x, loss_fn=lambda output: made.loss(output, made.y)
        ),
    }
    for name, call in calls.items():
        try:
            call()
        except AssertionError:
            yield name


def with_anomaly_mode(made: Program) -> Iterator[str]:
    try:
        with torch.autograd.detect_anomaly(check_nan=True):
            for _ in range(5):
                made.step()
    except RuntimeError:
        yield "RuntimeError"


def with_underflow_overflow(made: Program) -> Iterator[str]:
    from transformers.debug_utils import DebugUnderflowOverflow

    DebugUnderflowOverflow(made.model)
    try:
        for _ in range(5):
            made.step()
    except ValueError:
        yield "ValueError"


TOOLS: dict[str, tuple[str, Callable[[Program], Iterator[str]]]] = {
    "debugkit": ("", with_debugkit),
    "torch-audit": ("torch-audit", with_torch_audit),
    "torchtest2": ("torchtest2", with_torchtest2),
    "guardtower": ("guardtower", with_guardtower),
    "pytest-torch": ("pytest-torch", with_pytest_torch),
    "anomaly mode": ("torch", with_anomaly_mode),
    "DebugUnderflowOverflow": ("transformers", with_underflow_overflow),
}


def reported(tool: Callable[[Program], Iterator[str]], fault: Callable[[bool], Program], wrong: bool) -> list[str]:
    torch.manual_seed(0)
    made = fault(wrong)
    quiet = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        warnings.simplefilter("ignore")
        return sorted(set(tool(made)))


def main() -> int:
    """Measure every tool that is installed, and write what each reports."""
    torch.set_num_threads(1)
    rows: dict[str, Any] = {}
    for name, (package, tool) in TOOLS.items():
        version = importlib.metadata.version(package) if package else ""
        faults = {title: [reported(tool, fault, wrong) for wrong in (True, False)] for title, fault in FAULTS.items()}
        rows[name] = {"version": version, "faults": faults}
        found = sum(bool(set(wrong) - set(right)) for wrong, right in faults.values())
        sys.stdout.write(f"{name} {version}: {found} of {len(FAULTS)}\n")
    OUT.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
