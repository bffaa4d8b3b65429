import torch
from torch import nn

import debugkit

torch.manual_seed(0)


def loss_fn(model, batch):
    return (model(batch["state"]) - batch["action"]).square().mean()


layers = [nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2), nn.Tanh()]
model = nn.Sequential(*layers[:3])
action = 3.6 * torch.randn(12, 2).sign()  # beyond the range of tanh
batch = {"state": torch.randn(12, 4), "action": action}
report = debugkit.check(model, batch, loss_fn, select="DK508")
print(report)
