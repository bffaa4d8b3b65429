import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4))
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return {"loss": self.head(self.vision(x)).square().mean()}


model = Policy()
model.vision.requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters())
batch = {"x": torch.randn(5, 3)}
report = debugkit.check(model, batch, optimizer=optimizer, select="DK103")
print(report)
