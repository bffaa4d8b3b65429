import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Gate(torch.autograd.Function):
    """x * sigmoid(gate)"""

    @staticmethod
    def forward(ctx, x, gate):
        ctx.save_for_backward(x, gate)
        return x * gate.sigmoid()

    @staticmethod
    def backward(ctx, gradient):
        x, gate = ctx.saved_tensors
        share = gate.sigmoid()
        return gradient * share, gradient * x * share * (1 - share)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.gate = nn.Linear(48, 64), nn.Linear(48, 64)
        self.head = nn.Linear(64, 7)

    def forward(self, x, action):
        hidden = self.head(Gate.apply(self.vision(x), self.gate(x)))
        return {"loss": (hidden - action).square().mean()}


model = Policy()
batch = {"x": torch.randn(16, 48), "action": torch.randn(16, 7)}
report = debugkit.check(model, batch, select="DK108")
print(report)
