import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(6, 1)
        self.head = nn.Linear(6, 3)

    def forward(self, frames):  # (batch, time, feature)
        weight = self.score(frames).softmax(dim=1)
        return self.head((frames * weight).sum(1))


def loss_fn(model, batch):
    return model(batch).square().mean()


model = Policy()
batch = torch.randn(4, 5, 6)
report = debugkit.check(model, batch, loss_fn, select="DK305")
print(report)
