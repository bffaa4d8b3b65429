"""Semantic segmentation of coloured squares; logits of (B, C, H, W) are flattened with the classes last.

fault view_classes: DK324
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
C = 4


def make(n):
    x = torch.rand(n, 3, 16, 16) * 0.3
    y = torch.zeros(n, 16, 16, dtype=torch.long)
    for i in range(n):
        for c in range(1, C):
            r, q = torch.randint(0, 11, (2,)).tolist()
            x[i, c - 1, r:r + 5, q:q + 5] += 0.7
            y[i, r:r + 5, q:q + 5] = c
    return TensorDataset(x, y)


class UNetish(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.mid = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Upsample(scale_factor=2))
        self.out = nn.Conv2d(48, C, 1)

    def forward(self, x):
        a = self.down(x)
        b = self.mid(a)
        return self.out(torch.cat([a, b], dim=1))


def train():
    train_loader = DataLoader(make(128), batch_size=16, shuffle=True)
    val_loader = DataLoader(make(32), batch_size=16)
    net = UNetish()
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)

    for epoch in range(8):
        net.train()
        total = 0.0
        for img, mask in train_loader:
            opt.zero_grad()
            logits = net(img)
            loss = F.cross_entropy(logits.permute(0, 2, 3, 1).reshape(-1, C), mask.view(-1))  #! view_classes: loss = F.cross_entropy(logits.view(-1, C), mask.view(-1))
            loss.backward()
            opt.step()
            total += loss.item()
        net.eval()
        hit = n = 0
        with torch.no_grad():
            for img, mask in val_loader:
                pred = net(img).argmax(1)
                hit += (pred == mask).sum().item()
                n += mask.numel()
        print(f"epoch {epoch} loss {total / len(train_loader):.3f} pixel acc {hit / n:.3f}")


WATCH = ()
