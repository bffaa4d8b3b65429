"""The callback in a real Lightning Trainer: silent on a healthy fit, loud on a faulty one, and gone afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from torch import Tensor, nn

import debugkit
from debugkit import DebugkitError
from debugkit.integrations.lightning import DebugkitCallback

pytestmark = [
    # Lightning's advice about workers, and PyTorch's to the people who write Lightning.
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*`training_step` returned `None`"),
]
Attached = Callable[[nn.Module], int]


class Policy(lightning.LightningModule):
    """State (B, 4) → action (B, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.head = nn.Linear(4, 16), nn.Linear(16, 1)
        self.losses: list[float] = []

    def loss(self, batch: Any) -> Tensor:
        state, action = batch
        return (self.head(torch.relu(self.trunk(state))) - action).square().mean()

    def training_step(self, batch: Any, index: int) -> Any:
        loss = self.loss(batch)
        self.log("loss", loss)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("validation", self.loss(batch))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), 1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


class TwoOptimizers(Policy):
    """Steps the trunk's optimizer and the head's by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, index: int) -> None:
        loss = self.loss(batch)
        self.losses.append(loss.item())
        optimizers = self.optimizers()
        for optimizer in optimizers:
            optimizer.zero_grad()
        self.manual_backward(loss)
        for optimizer in optimizers:
            optimizer.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.AdamW(part.parameters(), 1e-2) for part in (self.trunk, self.head)]


class RootOfZero(Policy):
    def loss(self, batch: Any) -> Tensor:
        hidden = torch.relu(self.trunk(batch[0]))
        return self.head(torch.sqrt((hidden - hidden).abs())).square().mean()


class RootOfZeroByHand(TwoOptimizers, RootOfZero): ...


class Forgets(Policy):
    """Logs its loss, and does not return it."""

    def training_step(self, batch: Any, index: int) -> None:
        self.log("loss", self.loss(batch))


class Detaches(Policy):
    def training_step(self, batch: Any, index: int) -> Tensor:
        return self.loss(batch).detach()


class Skips(Policy):
    """Leaves out one batch in three, as one does with a batch whose mask is empty."""

    def training_step(self, batch: Any, index: int) -> Any:
        return None if index % 3 == 0 else super().training_step(batch, index)


class Raises(Policy):
    def training_step(self, batch: Any, index: int) -> Any:
        if index == 1:
            raise RuntimeError("the camera is gone")
        return super().training_step(batch, index)


def fit(module: Policy, *callbacks: Any, **options: Any) -> Policy:
    torch.manual_seed(0)
    for part in (module.trunk, module.head):
        part.reset_parameters()
    data = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
    loader = torch.utils.data.DataLoader(data, 8)
    trainer = lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=list(callbacks),
        **(options or {"max_steps": 6}),
    )
    trainer.fit(module, loader, loader)
    return module


@pytest.mark.parametrize(
    "options",
    [
        {"max_steps": 6},
        {"fast_dev_run": True},
        {"max_steps": 4, "accumulate_grad_batches": 2},
        {"max_steps": 4, "gradient_clip_val": 0.5},
        {"max_steps": 4, "precision": "64-true"},
        {"max_steps": 4, "precision": "bf16-mixed"},
    ],
    ids=str,
)
def test_a_healthy_fit_is_silent_and_its_losses_are_bit_equal(options: dict[str, Any], attached: Attached) -> None:
    plain = fit(Policy(), **options)
    callback, module = DebugkitCallback(), Policy()
    before = attached(module)
    fit(module, callback, **options)

    assert callback.report.ok, str(callback.report)
    assert "DK201" in callback.report.examined
    assert module.losses == plain.losses
    assert attached(module) == before
    assert {name: p.tolist() for name, p in module.named_parameters()} == {
        name: p.tolist() for name, p in plain.named_parameters()
    }


def test_several_optimizers_stepped_by_hand(attached: Attached) -> None:
    plain, module, callback = fit(TwoOptimizers()), TwoOptimizers(), DebugkitCallback()
    before = attached(module)
    fit(module, callback)
    assert callback.report.ok, str(callback.report)
    assert "6 steps watched" in callback.report.title
    assert module.losses == plain.losses
    assert attached(module) == before


def test_a_module_that_leaves_out_a_batch_now_and_then_is_healthy() -> None:
    callback = DebugkitCallback()
    fit(Skips(), callback, max_epochs=3)
    assert callback.report.ok, str(callback.report)
    assert "DK906" in callback.report.examined


@pytest.mark.parametrize("cls", [RootOfZero, RootOfZeroByHand])
def test_a_nan_stops_the_fit_at_its_line_before_it_is_in_the_weights(cls: type[Policy], attached: Attached) -> None:
    callback, module = DebugkitCallback(on_finding="raise"), cls()
    before = attached(module)

    with pytest.raises(DebugkitError, match="DK202"):
        fit(module, callback)

    found = callback.report.by_code["DK202"][0]
    assert found.location.file == __file__
    assert "torch.sqrt" in Path(__file__).read_text().splitlines()[(found.location.line or 1) - 1]
    if cls is RootOfZero:
        assert all(p.isfinite().all() for p in module.parameters())
    assert attached(module) == before


def test_nothing_stays_after_an_exception_of_the_module(attached: Attached) -> None:
    callback, module = DebugkitCallback(), Raises()
    before = attached(module)
    with pytest.raises(RuntimeError, match="the camera is gone"):
        fit(module, callback)
    assert attached(module) == before
    assert "1 step watched" in callback.report.title


@pytest.mark.parametrize("options", [{"max_steps": 6}, {"fast_dev_run": True}], ids=str)
def test_a_loss_that_is_not_returned_is_the_one_cause(options: dict[str, Any]) -> None:
    found: list[str] = []
    callback = DebugkitCallback(on_finding=lambda finding: found.append(finding.code))
    fit(Forgets(), callback, **options)
    [cause] = callback.report.causes
    assert cause.code == "DK906"
    assert cause.location.file == __file__
    assert "DK906" in found


def test_a_detached_loss_is_named_although_the_fit_died_of_it(attached: Attached) -> None:
    callback, module = DebugkitCallback(), Detaches()
    before = attached(module)
    with pytest.raises(RuntimeError, match="does not require grad"):
        fit(module, callback)
    [cause] = callback.report.causes
    assert cause.code == "DK906"
    assert "detached" in cause.message
    assert attached(module) == before


def test_a_module_is_examined_before_training_with_its_own_training_step() -> None:
    batch = (torch.randn(8, 4), torch.randn(8, 1))
    module = Detaches()
    report = debugkit.check(module, batch, lambda model, batch: model.training_step(batch, 0), select="DK906")
    assert "DK906" in report.by_code
    assert "training_step" not in vars(module)
