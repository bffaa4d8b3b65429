"""first_nonfinite, detect_overflow, trace_batches, gradient_table, snapshot_on_failure, each by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import faulty_models
import pytest
import torch
import training_loops as loops
from torch import nn

import debugkit
from debugkit.finding import NotExamined
from debugkit.instruments.trace_batches import TracedEnough


def test_first_nonfinite_leaves_the_model_as_it_was() -> None:
    model, batch = faulty_models.Distance(), torch.randn(4, 3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state, hooks = torch.get_rng_state(), [len(m._forward_hooks) for m in model.modules()]
    origin = debugkit.first_nonfinite(model, batch, lambda model, batch: model(batch).sum())
    assert origin is not None
    assert origin.operation == "SqrtBackward0"
    assert torch.equal(state, torch.get_rng_state())
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
    assert [len(m._forward_hooks) for m in model.modules()] == hooks
    assert all(p.grad is None for p in model.parameters())


def test_first_nonfinite_prints_sentences() -> None:
    model, batch = faulty_models.Distance(), torch.randn(4, 3)
    printed = str(debugkit.first_nonfinite(model, batch, lambda model, batch: model(batch).sum()))
    assert printed.startswith("`SqrtBackward0` returned Inf for a finite gradient in the backward pass of `")
    assert "faulty_models.py:" in printed
    assert "NonfiniteOrigin" not in printed
    printed = str(debugkit.first_nonfinite(model, batch / 0, lambda model, batch: model(batch).sum()))
    assert "already contains" in printed


def test_first_nonfinite_is_none_on_a_healthy_step() -> None:
    assert debugkit.first_nonfinite(loops.Policy(), torch.randn(4, 3), lambda m, b: m(b)["action"].sum()) is None


def test_first_nonfinite_names_an_infinite_loss() -> None:
    origin = debugkit.first_nonfinite(nn.Linear(3, 2), torch.zeros(4, 3), lambda m, b: (m(b) * 0.0).abs().sum().log())
    assert origin is not None
    assert (origin.operation, origin.kind, origin.phase) == ("log", "-Inf", "forward")


@pytest.mark.parametrize(
    ("expression", "operation", "kind"),
    [
        (lambda x: x / (x - x), "div", "Inf"),
        (lambda x: (x - x) / (x - x), "div", "NaN"),
        (lambda x: torch.log(x - x - 1), "log", "NaN"),
        (lambda x: (x * 1e30).pow(3), "pow", "Inf"),
        (lambda x: (x * 100).exp().exp(), "exp", "Inf"),
        (lambda x: (x * 1e6).half().float(), "_to_copy", "Inf"),
        (lambda x: torch.acos(x + 5), "acos", "NaN"),
        (lambda x: (x - x).rsqrt() * 2, "rsqrt", "Inf"),
    ],
)
def test_first_nonfinite_names_the_operation(
    expression: Callable[[torch.Tensor], torch.Tensor], operation: str, kind: str
) -> None:
    class Computes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return expression(x * self.scale) + 1.0

    origin = debugkit.first_nonfinite(Computes(), torch.ones(3), lambda model, batch: model(batch).sum())
    assert origin is not None
    assert (origin.operation, origin.kind) == (operation, kind)
    assert origin.inputs_finite


def test_detect_overflow_tells_where_float16_ends() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    with torch.no_grad():
        for layer in (model[0], model[1], model[3]):
            layer.weight.fill_(20.0)
            layer.bias.zero_()
    run = lambda dtype: debugkit.detect_overflow(model, torch.ones(2, 4), lambda m, b: m(b).sum(), dtype=dtype)  # noqa: E731
    half = run(torch.float16)
    assert half.first == "3"
    assert half.frames[-1].module == "3"
    assert half.near == (("1", 6400.0), ("3", 512000.0)) or dict(half.near)["3"] == 512000.0
    assert "3 is the first beyond" in str(half)
    assert run(torch.bfloat16).first is None
    with pytest.raises(NotExamined, match="no overflow to Inf"):
        run(torch.int8)


def test_trace_batches_prints_the_chosen_ones_and_stops() -> None:
    model, printed = loops.Policy(), []
    hooks = [len(m._forward_hooks) for m in model.modules()]

    def loop() -> None:
        for _ in range(9):
            model(torch.randn(4, 3))

    with (
        debugkit.trace_batches(model, [1, 3], abort_after=4, write=printed.append) as trace,
        pytest.raises(TracedEnough, match="Batch 4"),
    ):
        loop()
    assert [text.splitlines()[0] for text in printed] == ["batch 1", "batch 3"]
    assert set(trace.frames) == {1, 3}
    root = trace.frames[1][-1]
    assert root.module == ""
    assert {tensor.name for tensor in root.tensors} == {"input", "output[action]", "output[memory.0]"}
    assert [len(m._forward_hooks) for m in model.modules()] == hooks


def test_trace_batches_survives_a_batch_that_raises() -> None:
    model = nn.Sequential(nn.Linear(3, 2))
    with debugkit.trace_batches(model, [0, 1], write=lambda _: None) as trace:
        with pytest.raises(RuntimeError):
            model(torch.randn(4, 7))
        model(torch.randn(4, 3))
    assert all(len(m._forward_hooks) == 0 for m in model.modules())
    assert trace.frames


def test_gradient_table_tells_none_zero_frozen_and_nonfinite_apart() -> None:
    model = nn.ModuleDict({name: nn.Linear(2, 2, bias=False) for name in ("ok", "none", "zero", "frozen", "nonfinite")})
    model["frozen"].requires_grad_(False)
    for name, value in (("ok", 2.0), ("zero", 0.0), ("nonfinite", float("inf"))):
        model[name].weight.grad = torch.full((2, 2), value)
    table = debugkit.gradient_table(model)
    assert [row.state for row in table.rows] == ["ok", "none", "zero", "frozen", "nonfinite"]
    assert table.rows[0].norm == pytest.approx(4.0)
    assert table.rows[2].zeros == 1.0
    assert table.without_gradient() == ("none.weight", "zero.weight", "nonfinite.weight")
    assert len({len(line) for line in str(table).splitlines()[1:]}) <= 2


def test_snapshot_on_failure_keeps_the_failing_step(tmp_path: Path) -> None:
    model = faulty_models.Distance()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with debugkit.snapshot_on_failure(model, optimizer, folder=tmp_path) as run:
        model(torch.randn(4, 3)).sum().backward()
        optimizer.step()
    assert [path.name for path in run.snapshots] == ["step000000-dk202"]
