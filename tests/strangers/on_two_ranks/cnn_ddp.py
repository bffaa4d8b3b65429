"""DDP training of a small CNN on synthetic oriented-bar images; rank 0 validates with model.module.

fault no_set_epoch: DK703 at "sampler = Dist"|here
    The sampler is never told the epoch, so every epoch repeats one order.
fault same_data: DK806|DK805 at "logits = model(x)"|here
    Both ranks walk the entire training set in the same order instead of disjoint shards.
fault module_in_train: DK803
    The forward pass goes through model.module, so DDP never reduces gradients.
"""
import random

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

EPOCHS = 4
BATCH = 32
CLASSES = 4
SEED = 1234


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def make_bars(n, seed):
    """16x16 images with a noisy grating in one of four orientations."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, CLASSES, (n,), generator=g)
    yy, xx = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    theta = y.float() * torch.pi / CLASSES
    phase = torch.rand(n, generator=g) * 2 * torch.pi
    wave = torch.cos(theta)[:, None, None] * xx + torch.sin(theta)[:, None, None] * yy
    x = torch.sin(0.9 * wave + phase[:, None, None])
    x = x + 1.8 * torch.randn(n, 16, 16, generator=g)
    return TensorDataset(x.unsqueeze(1), y)


class SmallCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
        )
        self.drop = nn.Dropout(0.1)
        self.fc = nn.Linear(32 * 4, CLASSES)

    def forward(self, x):
        return self.fc(self.drop(self.features(x).flatten(1)))


@torch.no_grad()
def validate(net, loader):
    net.eval()
    correct = total = 0
    loss = 0.0
    for x, y in loader:
        out = net(x)
        loss += F.cross_entropy(out, y, reduction="sum").item()
        correct += (out.argmax(1) == y).sum().item()
        total += y.numel()
    net.train()
    return loss / total, correct / total


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    set_seed(SEED)

    train_set = make_bars(768, seed=1)
    val_set = make_bars(256, seed=2)
    sampler = DistributedSampler(train_set, num_replicas=world, rank=rank, shuffle=True, seed=SEED)  #! same_data: sampler = DistributedSampler(train_set, num_replicas=1, rank=0, shuffle=True, seed=SEED)
    train_loader = DataLoader(train_set, batch_size=BATCH, sampler=sampler, drop_last=True)
    val_loader = DataLoader(val_set, batch_size=128)

    model = DDP(SmallCNN())
    torch.manual_seed(SEED + 1 + rank)  # different dropout masks per rank
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS)

    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)  #! no_set_epoch: pass
        model.train()
        running = torch.zeros(2)
        for x, y in train_loader:
            optimizer.zero_grad()
            logits = model(x)  #! module_in_train: logits = model.module(x)
            loss = F.cross_entropy(logits, y)
            loss.backward()
            optimizer.step()
            running += torch.tensor([loss.item() * y.size(0), y.size(0)])
        scheduler.step()

        dist.all_reduce(running)
        if rank == 0:
            val_loss, val_acc = validate(model.module, val_loader)
            print(f"epoch {epoch} train_loss {running[0] / running[1]:.4f} "
                  f"val_loss {val_loss:.4f} val_acc {val_acc:.3f}", flush=True)
        dist.barrier()

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
