"""Modules that return what their loop needs, and loops that ignore the result."""

import torch
from torch import nn


class _Module(nn.Module):
    automatic_optimization = True

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 1)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())

    def loss(self, batch):
        return self.head(batch).square().mean()

    def training_step(self, batch, index):
        return self.loss(batch)


def _loop(module, optimizer):
    for index in range(9):

        def closure(index=index):
            returned = module.training_step(torch.randn(4, 3), index)
            optimizer.zero_grad()
            loss = returned["loss"] if isinstance(returned, dict) else returned
            if loss is not None:
                loss.backward()
            return loss

        optimizer.step(closure)


def _fixture(module, **more):
    return {"model": module, "optimizer": module.configure_optimizers(), "loop": _loop, **more}


def returns_its_loss():
    return _fixture(_Module())


def returns_a_mapping():
    class Maps(_Module):
        def training_step(self, batch, index):
            loss = self.loss(batch)
            return {"loss": loss, "seen": len(batch)}

    return _fixture(Maps())


def leaves_out_a_batch_now_and_then():
    """The first two batches are skipped, until the replay buffer has data."""

    class Skips(_Module):
        def training_step(self, batch, index):
            return None if index < 2 or index == 5 else self.loss(batch)

    return _fixture(Skips())


def optimizes_by_hand():
    class ByHand(_Module):
        automatic_optimization = False

        def training_step(self, batch, index):
            self.loss(batch).backward()

    def loop(module, optimizer):
        for index in range(5):
            optimizer.zero_grad()
            module.training_step(torch.randn(4, 3), index)
            optimizer.step()

    module = ByHand()
    expect = {"not_examined": "manual optimization"}
    return {"model": module, "optimizer": module.configure_optimizers(), "loop": loop, "expect": expect}


def evaluated_with_its_training_step():
    """The same method also computes the loss on validation data."""

    def loop(module, optimizer):
        _loop(module, optimizer)
        with torch.no_grad():
            for index in range(5):
                module.training_step(torch.randn(4, 3), index)

    module = _Module()
    return {"model": module, "optimizer": module.configure_optimizers(), "loop": loop}


def plain_module():
    module = nn.Linear(3, 1)
    return {
        "model": module,
        "batch": torch.randn(4, 3),
        "loss_fn": lambda module, batch: module(batch).square().mean(),
        "expect": {"not_examined": "not a LightningModule"},
    }


def examined_before_training():
    module = _Module()
    return {
        "model": module,
        "batch": torch.randn(4, 3),
        "loss_fn": lambda module, batch: module.training_step(batch, 0),
    }
