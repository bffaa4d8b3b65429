import torch
from torch import nn
from torch.nn import functional as F

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(32, 16), nn.Linear(16, 32)

    def forward(self, input_ids, labels):
        logits = self.head(self.words(input_ids)).flatten(0, 1)
        loss = F.cross_entropy(logits, labels.flatten())
        return {"loss": loss, "logits": logits}


model = Policy()
ids = torch.randint(32, (4, 8))
labels = ids.clone()
labels[0, 2:] = -100  # one sample has fewer targets
batch = {"input_ids": ids, "labels": labels}
declare = debugkit.Declare(accumulation=2)  # two parts for each step
report = debugkit.check(model, batch, declare=declare, select="DK507")
print(report)
