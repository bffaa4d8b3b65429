"""Residual GroupNorm network (GroupNorm in place of SyncBatchNorm) for dense blob segmentation, under DDP with
static_graph=True, activation checkpointing in each block and a OneCycleLR schedule stepped per batch.

fault sched_per_epoch: DK503
    OneCycleLR, laid out for all batches, is stepped once an epoch and never leaves its warm-up.
fault summed_loss: none
    The loss is summed over the pixels of the batch and divided by the world size instead of averaged, so every gradient is hundreds of times too large and always clipped.
fault sigmoid_twice: DK308|DK316
    The network's output is squashed before the with-logits loss squashes it again.
"""
import argparse
from functools import partial

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def blobs_and_masks(n, size, seed):
    """Bright discs among thin rings; the mask marks the discs only."""
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(size).float(), torch.arange(size).float(), indexing="ij")
    def dist_to(k):
        c = torch.rand(n, k, 2, generator=g) * (size - 6) + 3
        return ((yy - c[..., 0, None, None]) ** 2 + (xx - c[..., 1, None, None]) ** 2).sqrt()
    discs = (dist_to(2) < 3.0).any(1).float()
    rings = ((dist_to(2) - 3.0).abs() < 0.6).any(1).float()
    img = torch.maximum(discs, rings) + 0.35 * torch.randn(n, size, size, generator=g)
    return TensorDataset(img[:, None], discs[:, None])


def replace_batchnorm(module, groups=4):
    for name, child in module.named_children():
        if isinstance(child, nn.modules.batchnorm._BatchNorm):
            setattr(module, name, nn.GroupNorm(groups, child.num_features))
        else:
            replace_batchnorm(child, groups)
    return module


class ResBlock(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(ch, ch, 3, padding=1, bias=False), nn.BatchNorm2d(ch), nn.ReLU(),
                                  nn.Conv2d(ch, ch, 3, padding=1, bias=False), nn.BatchNorm2d(ch))

    def forward(self, x):
        return F.relu(x + self.body(x))


class SegNet(nn.Module):
    def __init__(self, ch=16, depth=3):
        super().__init__()
        self.stem = nn.Conv2d(1, ch, 3, padding=1)
        self.blocks = nn.ModuleList([ResBlock(ch) for _ in range(depth)])
        self.out = nn.Conv2d(ch, 1, 1)

    def forward(self, x):
        x = self.stem(x)
        for b in self.blocks:
            x = checkpoint(b, x, use_reentrant=False) if self.training else b(x)
        return self.out(x)  #! sigmoid_twice: return self.out(x).sigmoid()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    acc = torch.zeros(4)
    for img, mask in loader:
        logit = model(img)
        hit = (logit > 0).float()
        acc += torch.stack([(hit * mask).sum(), torch.maximum(hit, mask).sum(),
                            F.binary_cross_entropy_with_logits(logit, mask, reduction="sum"),
                            torch.tensor(float(mask.numel()))])
    model.train()
    dist.all_reduce(acc)
    return (acc[0] / acc[1]).item(), (acc[2] / acc[3]).item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=5)
    ap.add_argument("--bs", type=int, default=8)
    ap.add_argument("--max-lr", type=float, default=1e-2)
    ap.add_argument("--seed", type=int, default=6)
    cfg = ap.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(cfg.seed)
    train_set, val_set = blobs_and_masks(256, 20, 1), blobs_and_masks(64, 20, 2)
    sampler = DistributedSampler(train_set, world, rank, seed=cfg.seed)
    loader_of = partial(DataLoader, batch_size=cfg.bs)
    train_loader = loader_of(train_set, sampler=sampler, drop_last=True)
    val_loader = loader_of(val_set, sampler=DistributedSampler(val_set, world, rank, shuffle=False))

    model = DDP(replace_batchnorm(SegNet()), static_graph=True)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.max_lr, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=cfg.max_lr, epochs=cfg.epochs,
                                                steps_per_epoch=len(train_loader), pct_start=0.25)
    for epoch in range(cfg.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for i, (img, mask) in enumerate(train_loader):
            opt.zero_grad(set_to_none=True)
            pred = model(img)
            loss = F.binary_cross_entropy_with_logits(pred, mask)  #! summed_loss: loss = F.binary_cross_entropy_with_logits(pred, mask, reduction="sum") / world
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            sched.step()  #! sched_per_epoch: sched.step() if i == 0 else None
        iou, bce = evaluate(model, val_loader)
        if rank == 0:
            print(f"epoch {epoch} lr {sched.get_last_lr()[0]:.5f} iou {iou:.3f} bce {bce:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
