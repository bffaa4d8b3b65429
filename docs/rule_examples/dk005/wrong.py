import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 8)
        self.table = torch.randn(16, 8) * 0.02
        self.head = nn.Linear(8, 7)

    def forward(self, input_ids, action):
        hidden = self.words(input_ids) + self.table[: input_ids.shape[1]]
        return {"loss": (self.head(hidden.mean(1)) - action).square().mean()}


model = Policy()
batch = {"input_ids": torch.randint(0, 50, (2, 6)), "action": torch.randn(2, 7)}
report = debugkit.check(model, batch, select="DK005")
print(report)
