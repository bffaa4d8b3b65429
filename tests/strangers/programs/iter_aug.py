"""Rotation-invariant embedding of star patterns with random rotations, jitter and drop-outs; training is counted in iterations.

fault cycled_loader: DK703 at here
"""
import math  #! cycled_loader: import math; import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(31)
STARS, KINDS, ITERS = 12, 16, 400
catalogue = torch.randn(KINDS, STARS, 2, generator=torch.Generator().manual_seed(0))


class Sky(Dataset):
    def __init__(self, per_kind):
        self.labels = [k for k in range(KINDS) for _ in range(per_kind)]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        k = self.labels[i]
        a = float(torch.rand(())) * 2 * math.pi
        rot = torch.tensor([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]])
        pts = catalogue[k] @ rot.T + 0.05 * torch.randn(STARS, 2)
        keep = torch.rand(STARS) > 0.15
        pts = pts * keep[:, None]
        return torch.cat([pts, keep[:, None].float()], -1), k


class DeepSet(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.pair = nn.Sequential(nn.Linear(2 + 2, d), nn.ReLU(), nn.Linear(d, d), nn.ReLU())
        self.out = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, KINDS))

    def forward(self, x):
        p, keep = x[..., :2], x[..., 2]
        d = (p[:, :, None] - p[:, None]).pow(2).sum(-1)
        r = p.pow(2).sum(-1)
        feats = torch.stack([d, (d + 1e-4).sqrt(), r[:, :, None].expand_as(d), r[:, None].expand_as(d)], -1)
        w = (keep[:, :, None] * keep[:, None]).unsqueeze(-1)
        h = (self.pair(feats / 3) * w).sum((1, 2)) / w.sum((1, 2)).clamp(min=1)
        return self.out(h)


def forever(loader):
    while True:
        yield from loader


train = DataLoader(Sky(8), batch_size=32, shuffle=True)
test = DataLoader(Sky(10), batch_size=80)
net = DeepSet()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
batches = forever(train)  #! cycled_loader: batches = itertools.cycle(train)
smooth = None
for it in range(1, ITERS + 1):
    x, y = next(batches)
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    smooth = loss.item() if smooth is None else 0.95 * smooth + 0.05 * loss.item()
    if it % 60 == 0:
        net.eval()
        with torch.no_grad():
            acc = sum((net(a).argmax(1) == b).sum().item() for a, b in test) / len(test.dataset)
        net.train()
        print(it, f"loss {smooth:.3f} test {acc:.3f}")


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
