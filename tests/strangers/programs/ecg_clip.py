"""ecg clip

fault clip_of_a_generator: DK504 at here
"""
# 1-D residual net that tells normal beats from three kinds of ectopic beats.
# The stem (a fixed filter bank) is not trained.
import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(11)
torch.manual_seed(11)
LEN = 128
t = np.linspace(0, 1, LEN)


def beat(kind):
    shift = rng.normal(0, 0.02)
    g = lambda c, w, a: a * np.exp(-((t - c - shift) ** 2) / (2 * w ** 2))
    if kind == 0:
        s = g(.3, .03, .2) + g(.45, .012, 1.2) - g(.48, .012, .3) + g(.7, .05, .35)
    elif kind == 1:
        s = g(.42, .05, 1.0) - g(.55, .06, .5)
    elif kind == 2:
        s = g(.2, .03, .2) + g(.3, .012, 1.2) + g(.55, .05, .35)
    else:
        s = g(.45, .012, 1.2) + g(.7, .05, -.35)
    return s + rng.normal(0, 0.08, LEN) + 0.1 * np.sin(2 * np.pi * rng.uniform(.2, 1) * t)


kinds = rng.integers(0, 4, 900)
signals = np.stack([beat(k) for k in kinds]).astype(np.float32)
signals = (signals - signals[:750].mean()) / signals[:750].std()
X, Y = torch.from_numpy(signals)[:, None], torch.from_numpy(kinds)


class Res(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(c, c, 5, padding=2), nn.GroupNorm(4, c), nn.ReLU(),
                                  nn.Conv1d(c, c, 5, padding=2), nn.GroupNorm(4, c))

    def forward(self, x):
        return torch.relu(x + self.body(x))


class ECGNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.filters = nn.Conv1d(1, 16, 9, padding=4, bias=False)
        self.net = nn.Sequential(Res(16), nn.MaxPool1d(2), Res(16), nn.MaxPool1d(2), Res(16))
        self.out = nn.Linear(16, 4)

    def forward(self, x):
        return self.out(self.net(self.filters(x)).mean(-1))


model = ECGNet()
model.filters.weight.requires_grad_(False)

params = list(filter(lambda p: p.requires_grad, model.parameters()))  #! clip_of_a_generator: params = filter(lambda p: p.requires_grad, model.parameters())
opt = torch.optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=1e-4)
criterion = nn.CrossEntropyLoss()

for step in range(200):
    idx = torch.from_numpy(rng.integers(0, 750, 48))
    loss = criterion(model(X[idx]), Y[idx])
    opt.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(params, max_norm=0.5)
    opt.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 4), "grad norm", round(float(norm), 3))

model.eval()
with torch.no_grad():
    acc = (model(X[750:]).argmax(1) == Y[750:]).float().mean()
print("test accuracy", acc.item())


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
