"""Set-to-vector attention over lidar returns: which of 12 returns belong to the obstacle, and where is it.

fault softmax_over_the_heads: DK327 at here
"""
import math

import torch
from torch import nn, optim


class Attention(nn.Module):
    """Multi-head self-attention written out."""

    def __init__(self, dim, heads):
        super().__init__()
        self.h, self.d = heads, dim // heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))

    def split(self, x):
        return x.unflatten(-1, (self.h, self.d)).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d)
        attn = scores.softmax(dim=-1)  #! softmax_over_the_heads: attn = scores.softmax(dim=1)
        return self.o((attn @ v).transpose(1, 2).flatten(2))


class Encoder(nn.Module):
    def __init__(self, dim=48, depth=2):
        super().__init__()
        self.inp = nn.Linear(3, dim)
        self.att = nn.ModuleList(Attention(dim, 4) for _ in range(depth))
        self.ffn = nn.ModuleList(nn.Sequential(nn.Linear(dim, 96), nn.GELU(), nn.Linear(96, dim)) for _ in range(depth))
        self.n1 = nn.ModuleList(nn.LayerNorm(dim) for _ in range(depth))
        self.n2 = nn.ModuleList(nn.LayerNorm(dim) for _ in range(depth))
        self.member = nn.Linear(dim, 1)
        self.where = nn.Linear(dim, 2)

    def forward(self, x):
        h = self.inp(x)
        for a, f, n1, n2 in zip(self.att, self.ffn, self.n1, self.n2):
            h = h + a(n1(h))
            h = h + f(n2(h))
        return self.member(h).squeeze(-1), self.where(h.mean(1))


def scans(n):
    clutter = torch.rand(n, 12, 2) * 2 - 1
    centre = torch.rand(n, 1, 2) * 1.4 - 0.7
    hit = (torch.rand(n, 12) < 0.4)
    pts = torch.where(hit[..., None], centre + 0.08 * torch.randn(n, 12, 2), clutter)
    intensity = 0.5 + 0.2 * torch.randn(n, 12, 1)
    return torch.cat([pts, intensity - 0.5], -1), hit.float(), centre[:, 0]


torch.manual_seed(41)
net = Encoder()
opt = optim.AdamW(net.parameters(), lr=1.5e-3, weight_decay=0.01)
warm = optim.lr_scheduler.LinearLR(opt, 0.1, 1.0, 20)
bce, l1 = nn.BCEWithLogitsLoss(), nn.SmoothL1Loss()
for step in range(1, 301):
    x, hit, centre = scans(64)
    member, where = net(x)
    loss = bce(member, hit) + 2 * l1(where, centre)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    warm.step()
    if step % 60 == 0:
        acc = ((member > 0) == hit.bool()).float().mean().item()
        print(f"step {step} loss {loss.item():.4f} membership {acc:.3f} centre {(where - centre).abs().mean().item():.3f}")


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
