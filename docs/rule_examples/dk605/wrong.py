import torch
from torch import nn

import debugkit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
features = []


def keep_features(_module, _args, output):
    features.append(output.detach())


def train_step(state):
    model[1].register_forward_hook(keep_features)
    optimizer.zero_grad()
    model(state).square().mean().backward()
    optimizer.step()


with debugkit.watch(model, optimizer, select="DK605") as run:
    for _ in range(8):
        train_step(torch.randn(4, 3))
print(len(features), "features in 8 steps")
print(run.report)
