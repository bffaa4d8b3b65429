import torch
from torch import nn

import debugkit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def loss_of(state):
    return (model(state) - 1).square().mean()


def train():
    model.train()
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(torch.randn(4, 3)).backward()
        optimizer.step()


@torch.no_grad()
def validate():
    model.eval()
    return [loss_of(torch.randn(4, 3)).item() for _ in range(2)]


with debugkit.watch(model, optimizer, select="DK603") as run:
    for _ in range(3):
        train()
        validate()
print(run.report)
