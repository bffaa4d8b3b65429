"""Small residual CNN on synthetic glyphs with label smoothing, mixup and a per-step cosine schedule with linear warmup.

fault sched_per_epoch: none
fault mix_same_label: none
fault probs_to_ce: DK308 at "ce(out, y)"
fault val_in_train_mode: DK510 at module:stem.1
"""
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES, SIZE, EPOCHS, WARMUP = 6, 12, 5, 12


def glyphs(n, gen, templates):
    y = torch.randint(0, CLASSES, (n,), generator=gen)
    x = templates[y].clone()
    dx = torch.randint(-1, 2, (n,), generator=gen)
    for i in range(n):
        x[i] = x[i].roll(int(dx[i]), dims=-1)
    x = 40 + 60 * x + 45 * torch.randn(n, 1, SIZE, SIZE, generator=gen)
    return x, y


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)
        self.c2, self.b2 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)
        nn.init.zeros_(self.b2.weight)

    def forward(self, x):
        h = F.relu(self.b1(self.c1(x)))
        return F.relu(x + self.b2(self.c2(h)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.body = nn.Sequential(Block(16), nn.MaxPool2d(2), Block(16))
        self.fc = nn.Linear(16 * 9, CLASSES)

    def forward(self, x):
        h = F.max_pool2d(self.body(self.stem(x)), 2)
        return self.fc(h.flatten(1))  #! probs_to_ce: return self.fc(h.flatten(1)).softmax(-1)


def lr_factor(step, total):
    if step < WARMUP:
        return (step + 1) / WARMUP
    return 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / max(1, total - WARMUP)))


@torch.no_grad()
def validate(net, loader):
    net.eval()  #! val_in_train_mode: pass
    right = seen = 0
    for x, y in loader:
        right += (net(x).argmax(1) == y).sum().item()
        seen += len(y)
    return right / seen


def train():
    torch.manual_seed(11)
    gen = torch.Generator().manual_seed(5)
    templates = (torch.rand(CLASSES, 1, SIZE, SIZE, generator=gen) > 0.5).float()
    xtr, ytr = glyphs(600, gen, templates)
    xva, yva = glyphs(150, gen, templates)
    mean, std = xtr.mean(), xtr.std()
    train_dl = DataLoader(TensorDataset((xtr - mean) / std, ytr), 32, shuffle=True, drop_last=True)
    val_dl = DataLoader(TensorDataset((xva - mean) / std, yva), 50)

    net = Net()
    decay = [p for p in net.parameters() if p.ndim > 1]
    plain = [p for p in net.parameters() if p.ndim <= 1]
    opt = torch.optim.SGD([{"params": decay, "weight_decay": 5e-4}, {"params": plain, "weight_decay": 0.0}],
                          lr=0.02, momentum=0.9, nesterov=True)
    total = EPOCHS * len(train_dl)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: lr_factor(s, total))
    ce = nn.CrossEntropyLoss(label_smoothing=0.1)
    beta = torch.distributions.Beta(0.2, 0.2)
    losses, accs = [], []
    for epoch in range(EPOCHS):
        net.train()
        for x, y in train_dl:
            lam = beta.sample().item()
            perm = torch.randperm(len(x))
            out = net(lam * x + (1 - lam) * x[perm])
            loss = lam * ce(out, y) + (1 - lam) * ce(out, y[perm])  #! mix_same_label: loss = lam * ce(out, y) + (1 - lam) * ce(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()  #! sched_per_epoch: pass
            losses.append(loss.item())
        accs.append(validate(net, val_dl))  #! sched_per_epoch: accs.append(validate(net, val_dl)); sched.step()
    return losses, accs


WATCH = ()
