import torch
from torch import nn
from torch.nn import functional as F

import debugkit

torch.manual_seed(0)
END = PAD = 1


class Writer(nn.Module):
    """The next token after each token."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.memory = nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, 20)

    def forward(self, ids):
        return self.head(self.memory(self.embedding(ids))[0])


def loss_fn(model, batch):
    logits = model(batch["input_ids"])[:, :-1]
    labels = batch["labels"][:, 1:]
    return F.cross_entropy(logits.transpose(1, 2), labels)


lengths = torch.tensor([6, 8, 5, 10])  # with the end
is_text = torch.arange(10) < lengths[:, None]
is_end = torch.arange(10) == lengths[:, None] - 1
ids = torch.randint(2, 20, (4, 10)).masked_fill(is_end | ~is_text, END)
labels = ids.masked_fill(ids == PAD, -100)
batch = {"input_ids": ids, "attention_mask": is_text.long(), "labels": labels}
print(debugkit.check(Writer(), batch, loss_fn, select="DK323"))
