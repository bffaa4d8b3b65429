"""ViT from scratch with stochastic depth, layer-wise learning-rate decay, weight EMA and cosine warm-up; an argparse command-line script.

fault ema_backwards: none
fault blocks_list: DK101
fault clip_early: DK504
fault drop_path_always: DK506
"""
import argparse
import copy
import math

import torch
import torch.nn as nn


class DropPath(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if self.p == 0.0 or not self.training:  #! drop_path_always: if self.p == 0.0:
            return x
        keep = 1 - self.p
        mask = x.new_empty(x.shape[0], 1, 1).bernoulli_(keep)
        return x * mask / keep


class Block(nn.Module):
    def __init__(self, dim, heads, p):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.heads, self.path = heads, DropPath(p)

    def attn(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = (q @ k.transpose(-2, -1) / math.sqrt(d // self.heads)).softmax(-1)
        return self.proj((a @ v).transpose(1, 2).reshape(b, n, d))

    def forward(self, x):
        x = x + self.path(self.attn(self.n1(x)))
        return x + self.path(self.mlp(self.n2(x)))


class ViT(nn.Module):
    def __init__(self, img=24, patch=6, dim=48, depth=4, heads=4, classes=5, drop_path=0.1):
        super().__init__()
        n = (img // patch) ** 2
        self.embed = nn.Conv2d(3, dim, patch, patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(torch.randn(1, n + 1, dim) * 0.02)
        rates = torch.linspace(0, drop_path, depth).tolist()
        self.blocks = nn.ModuleList([Block(dim, heads, p) for p in rates])  #! blocks_list: self.blocks = [Block(dim, heads, p) for p in rates]
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)
        self.depth = depth

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x)[:, 0])


def layer_id(name, depth):
    if name.startswith(("embed", "cls", "pos")):
        return 0
    if name.startswith("blocks."):
        return int(name.split(".")[1]) + 1
    return depth + 1


def param_groups(model, lr, wd, decay):
    groups = {}
    for name, p in model.named_parameters():
        scale = decay ** (model.depth + 1 - layer_id(name, model.depth))
        no_wd = p.ndim < 2 or name in ("cls", "pos")
        g = groups.setdefault((scale, no_wd), {"params": [], "lr": lr * scale, "weight_decay": 0.0 if no_wd else wd})
        g["params"].append(p)
    return list(groups.values())


@torch.no_grad()
def update_ema(ema, model, step, decay):
    d = min(decay, (1 + step) / (10 + step))
    for e, p in zip(ema.parameters(), model.parameters()):
        e.mul_(d).add_(p, alpha=1 - d)  #! ema_backwards: e.mul_(1 - d).add_(p, alpha=d)


def make_data(n, gen):
    """A bar on noise: the class is its colour channel together with its orientation."""
    y = torch.randint(5, (n,), generator=gen)
    x = torch.randn(n, 3, 24, 24, generator=gen) * 0.6
    for i, c in enumerate(y.tolist()):
        col = int(torch.randint(0, 20, (1,), generator=gen))
        img = x[i].transpose(1, 2) if c in (1, 3) else x[i]
        img[c // 2, :, col:col + 4] += 1.3
    return x, y


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    return (model(x).argmax(1) == y).float().mean().item()


def parse(argv=None):
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--wd", type=float, default=0.05)
    ap.add_argument("--layer-decay", type=float, default=0.8)
    ap.add_argument("--ema", type=float, default=0.98)
    ap.add_argument("--clip", type=float, default=1.0)
    ap.add_argument("--seed", type=int, default=0)
    return ap.parse_args(argv)


def main(a):
    torch.manual_seed(a.seed)
    gen = torch.Generator().manual_seed(a.seed + 1)
    (x, y), (xv, yv) = make_data(512, gen), make_data(128, gen)
    mu, sd = x.mean((0, 2, 3), keepdim=True), x.std((0, 2, 3), keepdim=True)
    x, xv = (x - mu) / sd, (xv - mu) / sd
    model = ViT()
    ema = copy.deepcopy(model).eval().requires_grad_(False)
    opt = torch.optim.AdamW(param_groups(model, a.lr, a.wd, a.layer_decay))
    steps_per_epoch = len(x) // a.batch
    total, warm = a.epochs * steps_per_epoch, steps_per_epoch
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: (s + 1) / warm if s < warm else 0.5 * (1 + math.cos(math.pi * (s - warm) / (total - warm))))
    step = 0
    for ep in range(a.epochs):
        model.train()
        running = 0.0
        for idx in torch.randperm(len(x)).split(a.batch):
            loss = nn.functional.cross_entropy(model(x[idx]), y[idx], label_smoothing=0.05)
            opt.zero_grad()
            loss.backward()  #! clip_early: nn.utils.clip_grad_norm_(model.parameters(), a.clip)
            nn.utils.clip_grad_norm_(model.parameters(), a.clip)  #! clip_early: loss.backward()
            opt.step()
            sched.step()
            step += 1
            update_ema(ema, model, step, a.ema)
            running += loss.item() / steps_per_epoch
        if ep in (0, a.epochs - 1):
            print(f"epoch {ep}: loss {running:.4f} val acc {accuracy(model, xv, yv):.3f} ema acc {accuracy(ema, xv, yv):.3f}")


def train():
    main(parse([]))


WATCH = ()
