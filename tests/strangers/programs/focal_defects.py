"""focal defects

fault factor_of_the_mean: none
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(21)
device = "cuda" if torch.cuda.is_available() else "cpu"

# surface inspection: 0 = fine (80 %), 1 = scratch, 2 = dent, 3 = stain


def make(n):
    y = torch.multinomial(torch.tensor([.8, .07, .07, .06]), n, replacement=True)
    x = 0.25 * torch.randn(n, 1, 28, 28)
    g = torch.arange(28)
    for i, k in enumerate(y.tolist()):
        a, b = torch.randint(6, 22, (2,)).tolist()
        if k == 1:
            for s in range(-6, 7):
                x[i, 0, min(27, max(0, a + s)), min(27, max(0, b + s))] += 1.2
        elif k == 2:
            x[i, 0] -= 0.8 * torch.exp(-((g[:, None] - a) ** 2 + (g[None] - b) ** 2) / 12.)
        elif k == 3:
            x[i, 0, a - 4:a + 4, b - 4:b + 4] += 0.4
    return x, y


class FocalLoss(nn.Module):
    def __init__(self, gamma=2.0, alpha=None):
        super().__init__()
        self.gamma = gamma
        self.register_buffer("alpha", alpha)

    def forward(self, logits, target):
        ce = F.cross_entropy(logits, target, reduction="none")  #! factor_of_the_mean: ce = F.cross_entropy(logits, target)
        pt = torch.exp(-ce)
        focal = (1 - pt) ** self.gamma * ce
        if self.alpha is not None:
            focal = focal * self.alpha[target]
        return focal.mean()


def conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


net = nn.Sequential(conv(1, 16), nn.MaxPool2d(2), conv(16, 32), nn.MaxPool2d(2), conv(32, 32),
                    nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(32, 4)).to(device)
criterion = FocalLoss(2.0, torch.tensor([.4, 1.2, 1.2, 1.2])).to(device)
opt = torch.optim.Adam(net.parameters(), 2e-3)

x, y = make(1400)
xt, yt = make(400)
loader = DataLoader(TensorDataset(x, y), batch_size=40, shuffle=True, drop_last=True)

for ep in range(5):
    net.train()
    seen = 0.0
    for xb, yb in loader:
        xb, yb = xb.to(device), yb.to(device)
        loss = criterion(net(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        seen += loss.item()
    net.eval()
    with torch.no_grad():
        pred = torch.cat([net(b.to(device)).argmax(1).cpu() for b in xt.split(100)])
    recalls = [(pred[yt == k] == k).float().mean().item() for k in range(4)]
    print(ep, f"loss {seen / len(loader):.4f}", "recall per class", [f"{r:.2f}" for r in recalls])


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
