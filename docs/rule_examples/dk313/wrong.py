import torch
from torch import nn

import debugkit

torch.manual_seed(0)


def loss_fn(model, batch):
    return (model(batch["state"]) - batch["action"]).abs().mean()


model = nn.Linear(3, 2)
state = torch.randn(4, 3)
state[2, 1] = float("nan")  # a sensor that dropped out
batch = {"state": state, "action": torch.randn(4, 2)}
report = debugkit.check(model, batch, loss_fn, select="DK313")
print(report)
