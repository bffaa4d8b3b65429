"""MLP-Mixer on procedurally drawn shapes (disc, square, cross, stripes).

fault schedule_in_epochs: DK503 at here
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
SIZE, PATCH, DIM, CLASSES = 24, 4, 48, 4
EPOCHS, BATCH = 8, 32


def draw(n):
    yy, xx = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    images, labels = [], []
    for _ in range(n):
        k = int(torch.randint(CLASSES, ()))
        cx, cy = torch.randint(8, SIZE - 8, (2,))
        r = int(torch.randint(4, 8, ()))
        if k == 0:
            m = (xx - cx) ** 2 + (yy - cy) ** 2 < r * r
        elif k == 1:
            m = ((xx - cx).abs() < r) & ((yy - cy).abs() < r)
        elif k == 2:
            m = ((xx - cx).abs() < 2) | ((yy - cy).abs() < 2)
        else:
            m = (xx + yy) % (r + 1) < 2
        color = torch.rand(3, 1, 1) * 0.6 + 0.4
        img = m.float()[None] * color + 0.15 * torch.randn(3, SIZE, SIZE)
        images.append(img)
        labels.append(k)
    x = torch.stack(images)
    return (x - 0.25) / 0.35, torch.tensor(labels)


class MixerBlock(nn.Module):
    def __init__(self, tokens, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.token_mix = nn.Sequential(nn.Linear(tokens, 64), nn.GELU(), nn.Linear(64, tokens))
        self.channel_mix = nn.Sequential(nn.Linear(dim, 96), nn.GELU(), nn.Linear(96, dim))

    def forward(self, x):
        x = x + self.token_mix(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channel_mix(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, DIM, PATCH, PATCH)
        self.blocks = nn.Sequential(*[MixerBlock((SIZE // PATCH) ** 2, DIM) for _ in range(3)])
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, CLASSES)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


xtr, ytr = draw(800)
xva, yva = draw(160)
train = DataLoader(TensorDataset(xtr, ytr), BATCH, shuffle=True)
valid = DataLoader(TensorDataset(xva, yva), 80)

model = Mixer()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.02)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS * len(train), eta_min=1e-5)  #! schedule_in_epochs: scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS, eta_min=1e-5)

for epoch in range(EPOCHS):
    model.train()
    total = 0.0
    for x, y in train:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.item()
    model.eval()
    hits = 0
    with torch.no_grad():
        for x, y in valid:
            hits += (model(x).argmax(-1) == y).sum().item()
    print(f"epoch {epoch} loss {total / len(train):.3f} acc {hits / len(xva):.3f} lr {scheduler.get_last_lr()[0]:.2e}")


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
