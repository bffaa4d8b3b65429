"""Leaf-disease pictures through accelerate. Files are read as (H, W, 3) uint8 arrays, as cv2 or PIL give them.

fault view_for_permute: DK324 at here
"""
import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

set_seed(13)
MEAN = torch.tensor([0.35, 0.5, 0.3])[:, None, None]
STD = torch.tensor([0.2, 0.2, 0.2])[:, None, None]


def photograph(rng):
    """A leaf with healthy tissue (0), rust spots (1), mildew (2) or brown edges (3)."""
    h = w = 32
    yy, xx = np.mgrid[-1:1:32j, -1:1:32j]
    k = int(rng.integers(4))
    img = np.full((h, w, 3), (90, 70, 50), np.float32) + rng.normal(0, 6, (h, w, 3))
    cx, cy = rng.uniform(-.2, .2, 2)
    r = np.sqrt(((xx - cx) / rng.uniform(.6, .8)) ** 2 + ((yy - cy) / rng.uniform(.7, .9)) ** 2)
    img[r < 1] = (60, 150, 60)
    spots = [(rng.uniform(-.5, .5), rng.uniform(-.5, .5)) for _ in range(5)]
    for a, b in spots:
        d = (xx - a) ** 2 + (yy - b) ** 2
        if k == 1:
            img[d < .02] = (190, 100, 30)
        if k == 2:
            img[d < .02] = (200, 205, 200)
    if k == 3:
        img[(r < 1) & (r > .8)] = (120, 80, 40)
    img += rng.normal(0, 8, img.shape)
    return np.clip(img, 0, 255).astype(np.uint8), k


class Leaves(Dataset):
    def __init__(self, n, seed, flip=False):
        rng = np.random.default_rng(seed)
        self.items = [photograph(rng) for _ in range(n)]
        self.flip = flip

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        img, label = self.items[i]
        x = torch.from_numpy(img).permute(2, 0, 1).float() / 255  #! view_for_permute: x = torch.from_numpy(img).view(3, 32, 32).float() / 255
        if self.flip and torch.rand(()) < 0.5:
            x = x.flip(-1)
        return {"image": (x - MEAN) / STD, "label": label}


class SmallResNet(nn.Module):
    def __init__(self, classes=4, c=24):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c), nn.ReLU())
        self.a = nn.Sequential(nn.Conv2d(c, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c), nn.ReLU(),
                               nn.Conv2d(c, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c))
        self.down = nn.Conv2d(c, 2 * c, 3, 2, 1)
        self.head = nn.Linear(2 * c, classes)

    def forward(self, x):
        x = nn.functional.max_pool2d(self.stem(x), 2)
        x = torch.relu(x + self.a(x))
        return self.head(torch.relu(self.down(x)).mean((2, 3)))


def main():
    accelerator = Accelerator(cpu=True)
    train = DataLoader(Leaves(640, 0, flip=True), batch_size=32, shuffle=True)
    valid = DataLoader(Leaves(160, 1), batch_size=80)
    model = SmallResNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=5 * len(train))
    model, optimizer, train, valid, scheduler = accelerator.prepare(model, optimizer, train, valid, scheduler)
    for epoch in range(5):
        model.train()
        for batch in train:
            loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        model.eval()
        right = 0
        for batch in valid:
            with torch.no_grad():
                p = model(batch["image"]).argmax(-1)
            right += accelerator.gather_for_metrics((p == batch["label"]).float()).sum().item()
        accelerator.print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {right / 160:.3f}")


if __name__ == "__main__":
    main()


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
