"""A convolutional policy points at a square; images are flipped together with the lateral action.

fault flip_without_action: none
"""
import random

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
random.seed(0)


class PushData(Dataset):
    def __init__(self, n, augment):
        self.augment = augment
        self.img = torch.rand(n, 1, 16, 16) * 0.2
        self.act = torch.zeros(n, 2)
        for i in range(n):
            r, c = random.randrange(15), random.randrange(15)
            self.img[i, 0, r:r + 2, c:c + 2] = 1.0
            self.act[i] = torch.tensor([(c - 7) / 7, (r - 7) / 7])

    def __len__(self):
        return len(self.img)

    def __getitem__(self, i):
        img, act = self.img[i], self.act[i]
        if self.augment and random.random() < 0.5:
            img = img.flip(-1)
            act = act * torch.tensor([-1.0, 1.0])  #! flip_without_action: pass
        return {"observation.image": img, "action": act}


class VisuoMotor(nn.Module):
    def __init__(self):
        super().__init__()
        self.cnn = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, obs):
        return self.head(self.cnn(obs["observation.image"]))


def train():
    train = DataLoader(PushData(600, True), batch_size=32, shuffle=True)
    val = DataLoader(PushData(150, False), batch_size=50)
    policy = VisuoMotor()
    opt = torch.optim.Adam(policy.parameters(), lr=2e-3)
    for epoch in range(8):
        policy.train()
        total = 0
        for batch in train:
            loss = nn.functional.mse_loss(policy(batch), batch["action"])
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        policy.eval()
        with torch.no_grad():
            err = torch.stack([(policy(b) - b["action"]).abs().mean(0) for b in val]).mean(0)
        print(f"epoch {epoch} loss {total / len(train):.4f} val |error| lateral {err[0]:.3f} forward {err[1]:.3f}")


WATCH = ()
