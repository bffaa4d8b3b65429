import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 16, bias=False)
        self.value = nn.Linear(8, 16, bias=False)
        self.out = nn.Linear(16, 8, bias=False)
        for layer in (self.gate, self.value):
            nn.init.constant_(layer.weight, 15.0)
        nn.init.constant_(self.out.weight, 0.001)

    def forward(self, hidden):
        return self.out(self.gate(hidden).relu() * self.value(hidden))


def loss_fn(model, batch):
    return model(batch).float().square().mean()


dtype = torch.bfloat16
model = nn.Sequential(FeedForward()).to(dtype)
batch = torch.ones(4, 8, dtype=dtype)
report = debugkit.check(model, batch, loss_fn, select="DK203")
print(report)
