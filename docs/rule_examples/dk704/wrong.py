import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Annealed(nn.Module):
    """A term of the loss shrinks with the number of steps."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)
        self.calls = torch.zeros(())

    def forward(self, state):
        self.calls += 1
        action = self.head(state)
        return action + action.pow(2) / self.calls


def loss_fn(model, state):
    return model(state).square().mean()


model = Annealed()
optimizer = torch.optim.AdamW(model.parameters())
batch = torch.randn(6, 4)
report = debugkit.check(model, batch, loss_fn, optimizer, select="DK704")
print(report)
