import torch
from torch import nn
from torch.nn import functional as F

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(64, 16), nn.Linear(16, 64)

    def forward(self, input_ids, labels):
        logits = self.head(self.words(input_ids))
        return {"loss": F.cross_entropy(logits.flatten(0, 1), labels.flatten())}


model = Policy()
ids = torch.randint(3, 60, (3, 8))
labels = ids.clone()
labels[:, :5] = -100  # the prompt, which is not learnt
batch = {"input_ids": ids, "labels": labels}
report = debugkit.check(model, batch, select="DK307")
print(report)
