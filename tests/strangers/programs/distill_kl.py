"""Distillation of a classifier with a temperature and the KL divergence.

fault kl_probabilities: DK316
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
TEMP = 2.0
x = torch.randn(3000, 20)
y = (torch.tanh(x @ torch.randn(20, 16)) @ torch.randn(16, 8)).argmax(1)
train_dl = DataLoader(TensorDataset(x[:2500], y[:2500]), batch_size=50, shuffle=True)
xt, yt = x[2500:], y[2500:]


def mlp(width):
    return nn.Sequential(nn.Linear(20, width), nn.ReLU(), nn.Linear(width, 8))


def train():
    teacher = mlp(128)
    opt = torch.optim.Adam(teacher.parameters(), lr=3e-3)
    for epoch in range(5):
        for xb, yb in train_dl:
            opt.zero_grad()
            F.cross_entropy(teacher(xb), yb).backward()
            opt.step()
    teacher.eval()
    for p in teacher.parameters():
        p.requires_grad_(False)
    print("teacher acc", (teacher(xt).argmax(1) == yt).float().mean().item())

    student = mlp(32)
    opt = torch.optim.Adam(student.parameters(), lr=3e-3)

    def distillation_loss(s, t):
        return F.kl_div(F.log_softmax(s / TEMP, dim=-1), F.softmax(t / TEMP, dim=-1), reduction="batchmean") * TEMP ** 2  #! kl_probabilities: return F.kl_div(F.softmax(s / TEMP, dim=-1), F.softmax(t / TEMP, dim=-1), reduction="batchmean") * TEMP ** 2

    for epoch in range(6):
        student.train()
        tot = 0
        for xb, _ in train_dl:
            with torch.no_grad():
                t = teacher(xb)
            loss = distillation_loss(student(xb), t)
            opt.zero_grad()
            loss.backward()
            opt.step()
            tot += loss.item()
        student.eval()
        with torch.no_grad():
            s = student(xt)
            agree = (s.argmax(1) == teacher(xt).argmax(1)).float().mean().item()
            nll = F.cross_entropy(s, yt).item()
        print(f"epoch {epoch} loss {tot / len(train_dl):.3f} agreement {agree:.3f} test nll {nll:.3f}")


WATCH = ()
