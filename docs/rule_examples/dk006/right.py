import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self, tokens):
        super().__init__()
        self.words = nn.Embedding(tokens, 16)
        self.head = nn.Linear(16, 2)

    def forward(self, input_ids, action):
        return {
            "loss": (self.head(self.words(input_ids).mean(1)) - action).abs().mean()
        }


model = Policy(tokens=58)
batch = {"input_ids": torch.randint(0, 58, (3, 60)), "action": torch.randn(3, 2)}
report = debugkit.check(model, batch, select="DK006")
print(report)
