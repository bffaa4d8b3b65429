import torch
from torch import nn

import debugkit


def evaluate(model):
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        return model(torch.randn(64, 3)).square().mean()


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.2), nn.Linear(8, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

with debugkit.watch(model, optimizer, select="DK705") as run:
    for epoch in range(3):
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(8, 3)).square().mean().backward()
            optimizer.step()
        evaluate(model)
print(run.report)
