import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.head = nn.Linear(8, 2)

    def forward(self, x, action):
        states = []
        for layer in self.layers:
            x = layer(x).tanh()
            states.append(x)
        last = torch.stack(states)[0]
        return {"loss": (self.head(last) - action).square().mean()}


model = Policy()
batch = {"x": torch.randn(8, 8), "action": torch.randn(8, 2)}
report = debugkit.check(model, batch, select="DK107")
print(report)
