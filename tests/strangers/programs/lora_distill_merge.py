"""Pretrain a teacher, then LoRA-by-hand on new task with frozen base, then distil into a student (KL with temperature), then merge."""
import math, torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(12)
W = torch.randn(20, 6); W2 = W + torch.randn(20, 2) @ torch.randn(2, 6) * .8


def batches(w, n, bs=64):
    for _ in range(n):
        x = torch.randn(bs, 20)
        yield x, (x @ w + .3 * (x[:, :6] * x[:, 6:12])).argmax(1)


class LoRALinear(nn.Module):
    def __init__(self, base, r=4, alpha=8):
        super().__init__()
        self.base, self.scaling = base.requires_grad_(False), alpha / r
        self.A = nn.Parameter(torch.empty(r, base.in_features)); self.B = nn.Parameter(torch.zeros(base.out_features, r))
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))

    def forward(self, x):
        return self.base(x) + (x @ self.A.t() @ self.B.t()) * self.scaling

    @torch.no_grad()
    def merge(self):
        self.base.weight += self.B @ self.A * self.scaling
        return self.base


def net(w):
    return nn.Sequential(nn.Linear(20, w), nn.GELU(), nn.Linear(w, w), nn.GELU(), nn.Linear(w, 6))


def replace(module, match, make):
    for name, child in module.named_children():
        if match(child):
            setattr(module, name, make(child))
        else:
            replace(child, match, make)
    return module


def fit(model, data, loss_fn, params, lr):
    opt, hist = torch.optim.AdamW(params, lr=lr), []
    model.train()
    for x, y in data:
        loss = loss_fn(model(x), x, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        hist.append(loss.item())
    print(f"  loss {sum(hist[:5]) / 5:.3f} -> {sum(hist[-20:]) / 20:.3f}")


@torch.no_grad()
def acc(model, w):
    model.eval()
    return sum((model(x).argmax(1) == y).float().mean().item() for x, y in batches(w, 5)) / 5


def train():
    teacher = net(96)
    fit(teacher, batches(W, 150), lambda o, x, y: F.cross_entropy(o, y), teacher.parameters(), 3e-3)
    print("teacher", acc(teacher, W), "on new task", acc(teacher, W2))
    teacher.requires_grad_(False)
    replace(teacher, lambda m: isinstance(m, nn.Linear), LoRALinear)
    trainable = [p for p in teacher.parameters() if p.requires_grad]
    print("trainable", sum(p.numel() for p in trainable), "of", sum(p.numel() for p in teacher.parameters()))
    fit(teacher, batches(W2, 150), lambda o, x, y: F.cross_entropy(o, y), trainable, 5e-3)
    before = acc(teacher, W2)
    replace(teacher, lambda m: isinstance(m, LoRALinear), LoRALinear.merge)
    print("lora", before, "merged", acc(teacher, W2))
    teacher.eval()
    student, T = net(32), 3.

    def kd(logits, x, y):
        with torch.no_grad():
            soft = F.softmax(teacher(x) / T, 1)
        return .9 * T * T * F.kl_div(F.log_softmax(logits / T, 1), soft, reduction="batchmean") + .1 * F.cross_entropy(logits, y)

    fit(student, batches(W2, 150), kd, student.parameters(), 5e-3)
    print("student", acc(student, W2))


WATCH = ()
