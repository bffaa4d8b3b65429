import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6, 4)
        self.experts = nn.ModuleList(nn.Linear(6, 7) for _ in range(4))

    def forward(self, state, action):
        gate = self.router(state).softmax(-1)
        mixed = sum(
            gate[:, i, None] * expert(state) for i, expert in enumerate(self.experts)
        )
        used = gate.mean(0)
        balance = (used * used.log()).sum()
        return {"loss": (mixed - action).square().mean() + 0.1 * balance}


batch = {"state": torch.randn(16, 6), "action": torch.randn(16, 7)}
print(debugkit.check(Policy(), batch, select="DK121"))
