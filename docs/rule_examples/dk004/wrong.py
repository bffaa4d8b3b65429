import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(16, 32), nn.GELU()).bfloat16()
        self.head = nn.Linear(32, 7)

    def forward(self, state, action):
        hidden = self.backbone(state.bfloat16())
        return {"loss": (self.head(hidden) - action).square().mean()}


model = Policy()
batch = {"state": torch.randn(2, 16), "action": torch.randn(2, 7)}
report = debugkit.check(model, batch, select="DK004")
print(report)
