import torch
from torch import nn
from torch.nn import functional as F

import debugkit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


@torch.no_grad()
def validate():
    losses = [F.mse_loss(model(state), state[:, :2]) for state in torch.randn(4, 16, 3)]
    return torch.stack(losses).mean()


with debugkit.watch(model, optimizer, select="DK510") as run:
    for epoch in range(3):
        model.train()
        for state in torch.randn(5, 16, 3):
            optimizer.zero_grad()
            F.mse_loss(model(state), state[:, :2]).backward()
            optimizer.step()
        model.eval()
        validate()
print(run.report)
