import torch
from torch import nn
from torch.nn import functional as F

import debugkit

torch.manual_seed(0)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(32, 16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.head = nn.Linear(16, 32)

    def forward(self, input_ids, labels):
        x = self.embedding(input_ids)
        mask = None
        x = x + self.attention(x, x, x, attn_mask=mask)[0]
        logits = self.head(x)
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return {"loss": loss, "logits": logits}


model = Decoder()
ids = torch.randint(0, 32, (3, 8))
batch = {"input_ids": ids, "labels": ids}
report = debugkit.check(model, batch, select="DK304")
print(report)
