import torch
from torch import nn
from torch.nn import functional as F

import debugkit

torch.manual_seed(0)


def loss_fn(model, batch):
    return F.cross_entropy(model(batch["x"]), batch["labels"])


model = nn.Sequential(nn.Linear(4, 5), nn.Softmax(dim=-1))
batch = {"x": torch.randn(6, 4), "labels": torch.randint(0, 5, (6,))}
report = debugkit.check(model, batch, loss_fn, select="DK308")
print(report)
