import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 32), nn.Linear(32, 32)
        self.act, self.head = nn.GELU(), nn.Linear(32, 2)

    def forward(self, x, action):
        hidden = self.act(self.second(self.act(self.first(x))))
        return {"loss": (self.head(hidden) - action).square().mean()}


model = Policy()
batch = {"x": torch.randn(16, 6), "action": torch.randn(16, 2)}
report = debugkit.check(model, batch, select="DK116")
print(report)
