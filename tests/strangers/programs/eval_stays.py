"""A small VGG-like network with dropout for spoken-digit spectrogram patches, written around a Trainer class.

fault evaluation_mode_left_on: DK505 at ".eval()"
"""
from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Settings:
    classes: int = 5
    lr: float = 1e-3
    epochs: int = 6
    batch_size: int = 32
    log: list = field(default_factory=list)


def patches(n, classes, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (n,), generator=g)
    t, f = torch.arange(32).view(1, 1, 32), torch.arange(20).view(1, 20, 1)
    start = 4 + 2.5 * y.view(-1, 1, 1)
    slope = torch.tensor([0.2, -0.1, 0.0, 0.15, -0.2])[y].view(-1, 1, 1)
    centre = start + slope * t + 0.8 * torch.randn(n, 1, 1, generator=g)
    s = torch.exp(-((f - centre) ** 2) / 3) + 0.6 * torch.exp(-((f - 1.6 * centre) ** 2) / 3)
    s = s + 0.5 * torch.randn(n, 20, 32, generator=g)
    return ((s - s.mean()) / s.std())[:, None], y


class VGGish(nn.Module):
    def __init__(self, classes):
        super().__init__()
        ch, layers = 1, []
        for width in (16, 32, 48):
            layers += [nn.Conv2d(ch, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
            ch = width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0.3), nn.Linear(48 * 2 * 4, 64), nn.ReLU(), nn.Dropout(0.3),
                                        nn.Linear(64, classes))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


class Trainer:
    def __init__(self, model: nn.Module, settings: Settings):
        self.model, self.s = model, settings
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr)

    def train_epoch(self, loader):
        self.model.train()  #! evaluation_mode_left_on: pass
        total = 0.0
        for x, y in loader:
            loss = F.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            total += loss.item() * len(x)
        return total / len(loader.dataset)

    @torch.no_grad()
    def evaluate(self, loader):
        self.model.eval()
        hits = sum((self.model(x).argmax(-1) == y).sum().item() for x, y in loader)
        return hits / len(loader.dataset)

    def fit(self, train, valid):
        for epoch in range(self.s.epochs):
            loss = self.train_epoch(train)
            acc = self.evaluate(valid)
            self.s.log.append((epoch, loss, acc))
            print(f"[{epoch}] loss={loss:.4f} acc={acc:.3f}")


def main():
    torch.manual_seed(9)
    s = Settings()
    train = TensorDataset(*patches(960, s.classes, 0))
    valid = TensorDataset(*patches(200, s.classes, 1))
    trainer = Trainer(VGGish(s.classes), s)
    trainer.fit(DataLoader(train, s.batch_size, shuffle=True), DataLoader(valid, 100))


if __name__ == "__main__":
    main()


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
