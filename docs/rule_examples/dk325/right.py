import torch
from torch import nn
from torch.nn import functional as F

import debugkit

torch.manual_seed(0)


class Writer(nn.Module):
    """The next token after each token."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.memory = nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, 20)

    def forward(self, ids):
        return self.head(self.memory(self.embedding(ids))[0])


def loss_fn(model, ids):
    logits = model(ids)
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


batch = torch.randint(0, 20, (4, 11))
print(debugkit.check(Writer(), batch, loss_fn, select="DK325"))
