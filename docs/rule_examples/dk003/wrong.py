import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(4, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        hidden = self.encoder(x)
        keep = torch.ones(hidden.shape[-1])
        return {"loss": self.head(hidden * keep).mean()}


model = Masked()
batch = {"x": torch.randn(2, 4)}
report = debugkit.check(model, batch, select="DK003")
print(report)
