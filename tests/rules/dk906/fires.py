"""Modules with the interface of a LightningModule whose training_step does not return a usable loss."""

import functools

import torch
from torch import nn


class _Module(nn.Module):
    """The methods by which the rule recognises a LightningModule."""

    automatic_optimization = True

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 1)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())

    def loss(self, batch):
        return self.head(batch).square().mean()


def _fit(batches=5):
    """Automatic optimization as in Lightning: forward and backward run in the closure of step()."""

    def loop(module, optimizer):
        for index in range(batches):

            def closure(index=index):
                returned = module.training_step(torch.randn(4, 3), index)
                optimizer.zero_grad()
                loss = returned["loss"] if isinstance(returned, dict) else returned
                if loss is not None:
                    loss.backward()
                return loss

            optimizer.step(closure)

    return loop


def _fixture(module, expect, batches=5):
    return {"model": module, "optimizer": module.configure_optimizers(), "loop": _fit(batches), "expect": expect}


def return_was_forgotten():
    class Forgets(_Module):
        def training_step(self, batch, index):  # DK906
            self.loss(batch)

    return _fixture(Forgets(), {"message": "returned no loss in all 3 calls", "severity": "error"})


def only_one_batch_was_tried():
    class Forgets(_Module):
        def training_step(self, batch, index):  # DK906
            self.loss(batch)

    return _fixture(Forgets(), {"message": "in the only call", "severity": "warning"}, batches=1)


def loss_is_detached():
    class Detaches(_Module):
        def training_step(self, batch, index):  # DK906
            return self.loss(batch).detach()

    module = Detaches()
    return {
        "model": module,
        "batch": torch.randn(4, 3),
        "loss_fn": lambda module, batch: module.training_step(batch, 0),
        "expect": {"message": "a tensor that is detached", "severity": "error"},
    }


def loss_is_a_number():
    class Items(_Module):
        def training_step(self, batch, index):  # DK906
            return {"loss": self.loss(batch).item()}

    module = Items()
    return {
        "model": module,
        "batch": torch.randn(4, 3),
        "loss_fn": lambda module, batch: module.training_step(batch, 0)["loss"],
        "expect": {"message": "a float that is detached"},
    }


def decorated_step_forgets_in_a_check():
    def logged(function):
        @functools.wraps(function)
        def wrapper(*args):
            return function(*args)

        return wrapper

    class Forgets(_Module):
        @logged
        def training_step(self, batch, index):  # DK906
            self.loss(batch)

    return {
        "model": Forgets(),
        "batch": torch.randn(4, 3),
        "loss_fn": lambda module, batch: module.training_step(batch, 0),
        "expect": {"severity": "warning"},
    }
