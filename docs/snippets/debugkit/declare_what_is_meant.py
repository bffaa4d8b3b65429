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


declare = debugkit.Declare(normaliser=(to_model_units, to_robot_units))
report = debugkit.check(model, batch, loss_fn, declare=declare)
print(report.by_code["DK401"][0].message)
