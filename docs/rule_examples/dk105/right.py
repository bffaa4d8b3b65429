import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
        self.head = nn.Linear(4, 2)

    def forward(self, x, y):
        seen = self.vision(x)
        return {"loss": (self.head(seen) - y).square().mean()}


model = Policy()
batch = {"x": torch.randn(3, 4), "y": torch.randn(3, 2)}
report = debugkit.check(model, batch, select="DK105")
print(report)
