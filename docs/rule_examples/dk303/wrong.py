import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(32, 16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, input_ids, attention_mask):
        x = self.embedding(input_ids)
        padding = None
        mixed, _ = self.attention(x, x, x, key_padding_mask=padding)
        return {"features": self.head(x + mixed)}


def loss_fn(model, batch):
    return model(**batch)["features"].square().mean()


model = Encoder()
mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0]])
batch = {"input_ids": torch.randint(3, 32, mask.shape) * mask, "attention_mask": mask}
report = debugkit.check(model, batch, loss_fn, select="DK303")
print(report)
