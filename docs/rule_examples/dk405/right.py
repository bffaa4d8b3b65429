import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    """Actions are tokens: 64 bins over [-1, 1]."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.register_buffer("edges", torch.linspace(-1, 1, 65))

    def encode_actions(self, action):
        return (torch.bucketize(action.contiguous(), self.edges, right=True) - 1).clamp(
            0, 63
        )

    def decode_actions(self, tokens):
        return (self.edges[tokens] + self.edges[tokens + 1]) / 2

    def forward(self, state, action):
        return {"loss": (self.head(state) - action).abs().mean()}


model = Policy()
batch = {"state": torch.randn(6, 4), "action": torch.rand(6, 3) * 2 - 1}
report = debugkit.check(model, batch, select="DK405")
print(report)
