import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, state):
        hidden = self.body(state).relu()
        generator = torch.Generator()
        generator.seed()  # from the system: another number in each run
        noise = torch.randn(hidden.shape, generator=generator)
        return self.head(hidden + noise)


def loss_fn(model, state):
    return model(state).square().mean()


model = Policy()
batch = torch.randn(6, 4)
report = debugkit.check(model, batch, loss_fn, select="DK701")
print(report)
