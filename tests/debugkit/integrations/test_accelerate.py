"""A loop that Accelerate prepared, watched: accumulation stays silent, a fault is named in the model's own words."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from torch import nn

from debugkit.integrations.accelerate import watch
from debugkit.watched_run import Run, monitor_of

Attached = Callable[[nn.Module], int]


@pytest.fixture(autouse=True)
def _fresh_accelerate() -> Iterator[None]:
    """Accelerate keeps its settings for the whole process."""
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def accelerator_of(**options: object) -> Accelerator:
    return Accelerator(cpu=True, **options)


def policy() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    return model, torch.optim.AdamW(model.parameters(), 1e-2)


def train(accelerator: Accelerator, *, watched: bool, zero_grad: bool = True) -> tuple[list[float], Run, nn.Module]:
    data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    model, optimizer, loader = accelerator.prepare(*policy(), torch.utils.data.DataLoader(data, 4))
    losses: list[float] = []
    run = watch(accelerator, model, optimizer, on_finding=lambda _: None)
    if watched:
        run.__enter__()
    for state, action in loader:
        with accelerator.accumulate(model):
            loss = (model(state) - action).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            if zero_grad:
                optimizer.zero_grad()
        losses.append(loss.item())
    if watched:
        run.__exit__(None, None, None)
    return losses, run, accelerator.unwrap_model(model)


@pytest.mark.parametrize("options", [{}, {"gradient_accumulation_steps": 4}, {"mixed_precision": "bf16"}], ids=str)
def test_a_healthy_loop_is_silent_and_its_losses_are_bit_equal(options: dict[str, object], attached: Attached) -> None:
    torch.manual_seed(1)
    plain, _, other = train(accelerator_of(**options), watched=False)
    torch.manual_seed(1)
    losses, run, model = train(accelerator_of(**options), watched=True)
    assert run.report.ok, str(run.report)
    assert run.steps == (4 if "gradient_accumulation_steps" in options else 16)
    assert losses == plain
    assert attached(model) == attached(other)


def test_gradients_that_are_never_reset_are_found() -> None:
    _, run, _ = train(accelerator_of(), watched=True, zero_grad=False)
    assert "DK501" in run.report.by_code


def test_without_an_optimizer_those_that_were_prepared_are_watched() -> None:
    accelerator = accelerator_of()
    model, optimizer = accelerator.prepare(*policy())
    with watch(accelerator, model) as run:
        assert monitor_of(run).optimizers == [optimizer.optimizer]
