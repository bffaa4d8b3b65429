import torch
from torch import nn
from torch.nn import functional as F

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, state):
        hidden = F.dropout(self.body(state).relu(), 0.1)
        return self.head(hidden)


def loss_fn(model, state):
    return model(state).square().mean()


model = Policy()
batch = torch.randn(6, 4)
report = debugkit.check(model, batch, loss_fn, select="DK506")
print(report)
