import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.register_buffer("mean", torch.tensor([0.1, 0.0, -0.3]))
        self.register_buffer("std", torch.tensor([2.0, 0.5, 1.0]))

    def normalize(self, action):
        return (action - self.mean) / self.std

    def unnormalize(self, action):
        return action * self.std + self.mean

    def forward(self, state, action):
        return {"loss": (self.head(state) - self.normalize(action)).square().mean()}


model = Policy()
batch = {"state": torch.randn(6, 4), "action": torch.randn(6, 3)}
report = debugkit.check(model, batch, select="DK401")
print(report)
