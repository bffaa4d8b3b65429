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
named = list(model.named_parameters())
backbone = [p for name, p in named if name.startswith("backbone")]
head = [p for name, p in named if name.startswith("head")]
groups = [{"params": head}, {"params": backbone, "lr": 1e-5}]
optimizer = torch.optim.AdamW(groups)
batch = {"x": torch.randn(5, 3)}
report = debugkit.check(model, batch, optimizer=optimizer, select="DK101")
print(report)
