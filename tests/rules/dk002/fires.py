"""Losses whose operands broadcast."""

import torch
from torch import nn
from torch.nn import functional as F


def _regressor(outputs=1):
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, outputs))


def subtraction_by_hand():
    def loss_fn(model, batch):
        prediction = model(batch["state"])  # (B, 1)
        error = prediction - batch["gripper"]  # DK002
        return (error**2).mean()

    return {
        "model": _regressor(),
        "batch": {"state": torch.randn(5, 3), "gripper": torch.randn(5)},
        "loss_fn": loss_fn,
        "expect": {"severity": "error", "message": "(5, 5): 25 pairs instead of 5"},
    }


def target_first_with_mask_and_sum():
    def loss_fn(model, batch):
        state, gripper, valid = batch
        return ((gripper - model(state)).abs() * valid).sum() / valid.sum()  # DK002

    return {
        "model": _regressor(),
        "batch": (torch.randn(4, 3), torch.randn(4), torch.ones(4)),
        "loss_fn": loss_fn,
        "expect": {"severity": "error"},
    }


def loss_function_of_torch():
    def loss_fn(model, batch):
        return F.mse_loss(model(batch[0]), batch[1])  # DK002

    return {
        "model": _regressor(),
        "batch": (torch.randn(4, 3), torch.randn(4)),
        "loss_fn": loss_fn,
        "expect": {"severity": "error", "message": "mse_loss"},
    }


def loss_module():
    criterion = nn.SmoothL1Loss()

    def loss_fn(model, batch):
        return criterion(input=model(batch[0]), target=batch[1])  # DK002

    return {
        "model": _regressor(),
        "batch": (torch.randn(4, 3), torch.randn(4)),
        "loss_fn": loss_fn,
        "expect": {"severity": "error"},
    }


class LossInside(nn.Module):
    """Hugging Face's convention: forward computes the loss."""

    def __init__(self):
        super().__init__()
        self.head = _regressor()

    def forward(self, state, gripper):
        squared = (self.head(state) - gripper).pow(2)  # DK002
        return {"loss": squared.mean(0).mean()}


def loss_inside_the_model():
    batch = {"state": torch.randn(6, 3), "gripper": torch.randn(6)}
    return {"model": LossInside(), "batch": batch, "expect": {"severity": "error"}}


def one_step_against_the_whole_chunk():
    def loss_fn(model, batch):
        step = model(batch["state"]).view(4, 1, 2)  # (B, 1, D)
        return F.l1_loss(step, batch["action"])  # DK002

    return {
        "model": _regressor(2),
        "batch": {"state": torch.randn(4, 3), "action": torch.randn(4, 7, 2)},
        "loss_fn": loss_fn,
        "expect": {"severity": "warning"},
    }


def in_a_live_loop():
    def loop(model, optimizer):
        for _ in range(5):
            optimizer.zero_grad()
            prediction = model(torch.randn(4, 3))
            (prediction - torch.randn(4)).square().mean().backward()  # DK002
            optimizer.step()

    model = _regressor()
    return {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.01),
        "loop": loop,
        "expect": {"severity": "error"},
    }


def mean_of_the_targets_instead_of_the_targets():
    """A row that is computed from the batch is a target that has lost its rows."""
    return {
        "model": nn.Linear(3, 4),
        "batch": {"state": torch.randn(5, 3), "action": torch.randn(5, 4)},
        "loss_fn": lambda model, batch: (model(batch["state"]) - batch["action"].mean(0)).square().mean(),  # DK002
        "expect": {"severity": "warning", "message": "compares (5, 4) with (4,)"},
    }


def target_of_one_sample_for_the_whole_batch():
    return {
        "model": nn.Linear(3, 4),
        "batch": {"state": torch.randn(5, 3), "action": torch.randn(4)},
        "loss_fn": lambda model, batch: (model(batch["state"]) - batch["action"]).square().mean(),  # DK002
        "expect": {"severity": "warning", "message": "compares (5, 4) with (4,)"},
    }


def table_of_the_program_for_the_whole_batch():
    """The targets of one sample, made from a list: they are no constant of the formula."""

    def compared(model, batch):
        return (model(batch) - torch.tensor([float(value) for value in range(4)])).square().mean()  # DK002

    return {
        "model": nn.Linear(6, 4),
        "batch": torch.randn(8, 6),
        "loss_fn": compared,
        "expect": {"severity": "warning", "message": "compares (8, 4) with (4,)"},
    }
