import torch
from torch import nn
from torch.nn import functional as F

import debugkit

torch.manual_seed(0)


def loss_fn(model, batch):
    return F.mse_loss(model(batch["state"]), batch["action"])


ticks = torch.randint(20_000, 60_000, (32, 2)).float()
angles = torch.rand(32, 2)
state = torch.cat([ticks, angles], dim=1)
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
batch = {"state": state, "action": torch.rand(32, 2)}
report = debugkit.check(model, batch, loss_fn, optimizer, select="DK319")
print(report)
