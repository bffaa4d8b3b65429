"""Satellite-style regression: uint8 images normalised inside the model, NaN targets = missing labels (masked), curriculum from easy to hard, frozen pretrained trunk in eval mode, then unfreezing with a new optimizer; MC dropout at the end."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(15)


def make(n):
    level, tex = torch.rand(n), torch.rand(n)
    base = 60 + 130 * level[:, None, None, None] + 40 * tex[:, None, None, None] * torch.sign(torch.sin(torch.arange(16) * 2.))[None, None, None]
    noise = torch.linspace(2, 25, n)[:, None, None, None]                     # difficulty rises with the index
    img = (base.expand(-1, 3, 16, 16) + noise * torch.randn(n, 3, 16, 16)).clamp(0, 255).to(torch.uint8)
    y = torch.stack([level, tex], 1)
    y[torch.rand(n, 2) < .3] = float("nan")
    return img, y, (level > .5).long()


class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([140.] * 3).view(3, 1, 1)); self.register_buffer("std", torch.tensor([50.] * 3).view(3, 1, 1))
        self.net = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 24, 3, 2, 1), nn.BatchNorm2d(24), nn.ReLU(), nn.AvgPool2d(4), nn.Flatten())
    def forward(self, x):
        return self.net(x.float().sub_(self.mean).div_(self.std))


class Regressor(nn.Module):
    def __init__(self, trunk):
        super().__init__()
        self.trunk, self.frozen = trunk, True
        self.head = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Dropout(.1), nn.Linear(48, 2))
        trunk.requires_grad_(False)
    def train(self, mode=True):
        super().train(mode)
        if self.frozen:
            self.trunk.eval()                       # BatchNorm of a frozen trunk stays fixed
        return self
    def unfreeze(self):
        self.frozen = False
        self.trunk.requires_grad_(True)
        return self.train()
    def forward(self, x):
        return self.head(self.trunk(x))


def masked_mse(p, y):
    ok = ~torch.isnan(y)
    return torch.where(ok, p - torch.nan_to_num(y), 0.).square().sum() / ok.sum().clamp(min=1)


def train():
    img, y, cls = make(960)
    trunk = Trunk()
    probe = nn.Sequential(trunk, nn.Linear(24, 2))
    opt = torch.optim.Adam(probe.parameters(), 3e-3)
    for epoch in range(2):                               # pretraining by classification
        for x, c in DataLoader(TensorDataset(img, cls), 32, shuffle=True):
            loss = nn.functional.cross_entropy(probe(x), c)
            opt.zero_grad(); loss.backward(); opt.step()
        print("pretrain", loss.item())

    model = Regressor(trunk).train()
    for stage, (lr, epochs) in enumerate([(5e-3, 3), (1e-3, 4)]):
        if stage:
            model.unfreeze()
        opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr)
        for epoch in range(epochs):
            upto = int(len(img) * min(1., .5 + .25 * (epoch + 2 * stage)))           # curriculum: the easy part first
            loader = DataLoader(TensorDataset(img[:upto], y[:upto]), 32, shuffle=True)
            tot = 0.
            for x, t in loader:
                loss = masked_mse(model(x), t)
                opt.zero_grad(); loss.backward(); opt.step()
                tot += loss.item() / len(loader)
            print("stage", stage, epoch, f"{tot:.4f}")
    model.eval()
    for m in model.modules():
        if isinstance(m, nn.Dropout):
            m.train()                                    # MC dropout
    with torch.no_grad():
        s = torch.stack([model(img[:64]) for _ in range(8)])
    print("uncertainty", s.std(0).mean().item(), "mse", masked_mse(s.mean(0), y[:64]).item())


WATCH = ()
