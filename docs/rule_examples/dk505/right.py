import torch
from torch import nn

import debugkit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))
optimizer = torch.optim.AdamW(model.parameters())


def train(steps):
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 3)).square().mean().backward()
        optimizer.step()


def evaluate():
    model.eval()
    with torch.no_grad():
        model(torch.randn(4, 3))


with debugkit.watch(model, optimizer, select="DK505") as run:
    for _ in range(3):
        train(steps=3)
        evaluate()
print(run.report)
