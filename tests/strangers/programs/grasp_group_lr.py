"""Grasp-quality CNN: fine-tune a pretrained depth encoder with a small rate, the head with a large one.

fault one_rate_for_all_groups: DK503 at here
"""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--lr-backbone", type=float, default=2e-5)
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--warmup", type=int, default=15)
args = parser.parse_args()
torch.manual_seed(0)


def scenes(n, gen):
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, 20), torch.linspace(-1, 1, 20), indexing="ij")
    c = torch.rand(n, 2, generator=gen) - 0.5
    w = 0.15 + 0.4 * torch.rand(n, 1, 1, generator=gen)
    h = 0.15 + 0.4 * torch.rand(n, 1, 1, generator=gen)
    box = ((xx - c[:, :1, None]).abs() < w) & ((yy - c[:, 1:, None]).abs() < h)
    depth = box.float() * 0.8 + 0.05 * torch.randn(n, 20, 20, generator=gen)
    return depth[:, None] - 0.2, w[:, 0, 0], h[:, 0, 0]


def encoder():
    return nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
                         nn.Conv2d(32, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 9, 64), nn.ReLU())


def pretrain(gen):
    """Predict the extents of the box; stands for ImageNet weights."""
    enc, head = encoder(), nn.Linear(64, 2)
    opt = torch.optim.Adam([*enc.parameters(), *head.parameters()], lr=2e-3)
    for _ in range(300):
        d, w, h = scenes(64, gen)
        loss = F.mse_loss(head(enc(d)), torch.stack([w, h], -1))
        opt.zero_grad()
        loss.backward()
        opt.step()
    return enc


class GraspQ(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Sequential(nn.Linear(64 + 2, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, depth, grasp):
        return self.head(torch.cat([self.backbone(depth), grasp], -1)).squeeze(-1)


def factor(step):
    if step < args.warmup:
        return (step + 1) / args.warmup
    p = (step - args.warmup) / (args.steps - args.warmup)
    return 0.5 * (1 + math.cos(math.pi * p))


gen = torch.Generator().manual_seed(1)
model = GraspQ(pretrain(gen))
optimizer = torch.optim.AdamW([
    {"params": model.backbone.parameters(), "lr": args.lr_backbone, "base": args.lr_backbone},
    {"params": model.head.parameters(), "lr": args.lr, "base": args.lr},
], weight_decay=1e-4)

for step in range(args.steps):
    for group in optimizer.param_groups:
        group["lr"] = group["base"] * factor(step)  #! one_rate_for_all_groups: group["lr"] = args.lr * factor(step)
    depth, w, h = scenes(64, gen)
    opening = torch.rand(64, generator=gen) * 0.6
    along_x = (torch.rand(64, generator=gen) < 0.5).float()
    extent = torch.where(along_x.bool(), w, h)
    success = (opening > extent).float()
    logit = model(depth, torch.stack([opening, along_x], -1))
    loss = F.binary_cross_entropy_with_logits(logit, success)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if step % 40 == 0 or step == args.steps - 1:
        acc = ((logit > 0) == success.bool()).float().mean().item()
        print(f"{step:4d} loss {loss.item():.3f} acc {acc:.2f}")


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
