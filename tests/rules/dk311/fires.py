"""Splits that share samples."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset


def _program(train, validation, **expect):
    return {
        "model": nn.Linear(6, 2),
        "dataloader": {"train": train, "validation": validation},
        "loss_fn": lambda model, batch: model(batch[0]).square().mean(),
        "expect": expect,
    }


def ranges_that_overlap_by_index():
    data = TensorDataset(torch.randn(20, 6))
    return _program(
        DataLoader(Subset(data, range(16)), batch_size=4),
        DataLoader(Subset(data, range(14, 20)), batch_size=4),
        severity="error",
        message="2 of 6 samples of the validation loader are also in the train loader (compared by index)",
    )


def training_on_everything():
    data = TensorDataset(torch.randn(20, 6))
    return _program(DataLoader(data, batch_size=4), DataLoader(Subset(data, [3, 5]), batch_size=2), message="2 of 2")


def copies_found_by_content():
    train, action = torch.randn(16, 6), torch.randn(16, 2)
    validation = torch.cat([torch.randn(5, 6), train[3:6]])
    return _program(
        DataLoader(TensorDataset(train, action), batch_size=4, shuffle=True),
        DataLoader(TensorDataset(validation, torch.randn(8, 2) * 0), batch_size=4),
        severity="error",
        message="3 of 8",
    )
