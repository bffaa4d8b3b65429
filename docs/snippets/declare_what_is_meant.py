"""A normaliser under a name that no tool would look for, declared."""

import torch
from torch import nn

import debugkit

mean, std = torch.tensor([0.1, -0.2]), torch.tensor([0.5, 2.0])


def to_model_units(action):
    return (action - mean) / std


def to_robot_units(action):
    return action * std - mean  # the sign


model = nn.Linear(8, 2)
batch = {"state": torch.randn(16, 8), "action": torch.randn(16, 2)}


def loss_fn(model, batch):
    return (model(batch["state"]) - to_model_units(batch["action"])).pow(2).mean()


# --8<-- [start:declare]
report = debugkit.check(
    model,
    batch,
    loss_fn,
    declare=debugkit.Declare(normaliser=(to_model_units, to_robot_units)),
)
# --8<-- [end:declare]

assert "DK401" in report.by_code
