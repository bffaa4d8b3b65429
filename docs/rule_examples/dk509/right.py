import torch
from torch import nn

import debugkit

torch.manual_seed(0)


def loss_fn(model, batch):
    return (model(batch["state"]) - batch["action"]).square().mean()


model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
batch = {"state": torch.randn(12, 4), "action": torch.randn(12, 2)}
report = debugkit.check(model, batch, loss_fn, optimizer, select="DK509")
print(report)
