import copy

import torch
from torch import nn

import debugkit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.AdamW(model.parameters())
held_out = torch.randn(16, 3)

with debugkit.watch(model, optimizer, select="DK513") as run:
    lowest, best = float("inf"), copy.deepcopy(model.state_dict())
    for epoch in range(5):
        optimizer.zero_grad()
        model(torch.randn(4, 3)).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            loss = model(held_out).square().mean().item()
        if loss < lowest:
            lowest, best = loss, copy.deepcopy(model.state_dict())
        if epoch == 2:
            optimizer.param_groups[0]["lr"] = 1.0  # from here on it gets worse
    model.load_state_dict(best)
print(run.report)
