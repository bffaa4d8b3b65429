"""Batches with non-finite values before the model runs."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def _loss(model, batch):
    return (model(batch["state"]) - batch["action"]).abs().mean()


def sensor_that_dropped_out():
    state = torch.randn(4, 3)
    state[2, 1] = float("nan")
    return {
        "model": nn.Linear(3, 2),
        "batch": {"state": state, "action": torch.randn(4, 2)},
        "loss_fn": _loss,
        "expect": {"severity": "error", "message": "1 of 12 values of `state` in the batch is NaN"},
    }


def target_divided_by_zero():
    action = torch.randn(4, 2)
    action[0, 0], action[1] = float("inf"), float("nan")
    return {
        "model": nn.Linear(3, 2),
        "batch": {"state": torch.randn(4, 3), "action": action},
        "loss_fn": _loss,
        "expect": {"severity": "error", "count": 2},
    }


def late_in_the_loader():
    state = torch.randn(12, 3)
    state[9] = float("nan")
    loader = DataLoader(TensorDataset(state, torch.randn(12, 2)), batch_size=4)
    return {
        "model": nn.Linear(3, 2),
        "dataloader": loader,
        "loss_fn": lambda model, batch: (model(batch[0]) - batch[1]).abs().mean(),
        "expect": {"severity": "error", "message": "batch 2 of the train loader"},
    }


def column_that_nobody_reads_is_only_information():
    reward = torch.full((4,), float("nan"))
    return {
        "model": nn.Linear(3, 2),
        "batch": {"state": torch.randn(4, 3), "action": torch.randn(4, 2), "next.reward": reward},
        "loss_fn": _loss,
        "expect": {"severity": "info", "message": "but the loss and the outputs are finite"},
    }
