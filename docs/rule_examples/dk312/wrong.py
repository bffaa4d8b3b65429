import torch
from torch import nn
from torch.nn import functional as F

import debugkit

torch.manual_seed(0)


class Tied(nn.Module):
    def __init__(self, std):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(50, 64), nn.LayerNorm(64)
        nn.init.normal_(self.embedding.weight, std=std)
        self.head = nn.Linear(64, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, input_ids, labels):
        logits = self.head(self.norm(self.embedding(input_ids)))
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return {"loss": loss}


model = Tied(std=1.0)
ids = torch.randint(0, 50, (4, 10))
batch = {"input_ids": ids, "labels": ids}
report = debugkit.check(model, batch, select="DK312")
print(report)
