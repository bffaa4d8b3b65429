import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, state):
        spread = state.std(0)
        return self.head((state - state.mean(0)) / spread)


def loss_fn(model, batch):
    return model(batch).square().mean()


model = Policy()
batch = torch.randn(8, 3)
batch[:, 1] = 0.5  # a joint that never moves
report = debugkit.check(model, batch, loss_fn, select="DK201")
print(report)
