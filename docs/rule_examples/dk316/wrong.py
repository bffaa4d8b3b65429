import torch
from torch import nn
from torch.nn import functional as F

import debugkit

torch.manual_seed(0)


def loss_fn(model, batch):
    logits = model(batch["image"] / 255)
    return F.binary_cross_entropy_with_logits(logits, batch["image"])


model = nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 64))
batch = {"image": torch.randint(256, (6, 64)).float()}
report = debugkit.check(model, batch, loss_fn, select="DK316")
print(report)
