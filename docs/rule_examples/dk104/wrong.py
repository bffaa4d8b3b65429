import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        return {"loss": self.head(self.vision(x)).square().mean()}


model = Policy()
optimizer = torch.optim.SGD([*model.parameters(), model.head.weight], lr=0.1)
batch = {"x": torch.randn(5, 3)}
report = debugkit.check(model, batch, optimizer=optimizer, select="DK104")
print(report)
