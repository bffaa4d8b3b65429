"""Shared-trunk multi-task model (classification + regression) under DDP with find_unused_parameters;
on some steps the regression head is skipped, by a coin that falls the same way on all ranks.

fault missing_zero_grad: DK501
    Gradients are never cleared and pile up over steps.
fault optim_on_stale_copy: DK102|DK103|DK502|DK101
    The optimizer is built on a deep copy of the network, so the model in training never moves.
fault rank0_metrics: none
    The reported metrics are those of rank 0's shard, counted as if they were everybody's.
"""
import copy
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class TwoTargets(Dataset):
    """20 features; a class from a quadratic rule and a smooth regression target."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, 20, generator=g)
        a, b = self.x[:, 0] * self.x[:, 1], self.x[:, 2] + 0.5 * self.x[:, 3]
        self.label = (a > 0).long() + 2 * (b > 0).long()
        self.value = torch.sin(self.x[:, 4]) + 0.5 * self.x[:, 5] * self.x[:, 0]

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.label[i], self.value[i]


class MultiTaskNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(20, width), nn.SiLU(), nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU())
        self.cls_head = nn.Linear(width, 4)
        self.reg_head = nn.Sequential(nn.Linear(width, 32), nn.SiLU(), nn.Linear(32, 1))

    def forward(self, x, with_reg=True):
        h = self.trunk(x)
        return self.cls_head(h), self.reg_head(h).squeeze(-1) if with_reg else None


class Trainer:
    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        net = MultiTaskNet()
        self.model = DDP(net, find_unused_parameters=True)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=4e-3)  #! optim_on_stale_copy: self.opt = torch.optim.Adam(copy.deepcopy(net).parameters(), lr=4e-3)
        train, valid = TwoTargets(1536, 3), TwoTargets(512, 4)
        self.sampler = DistributedSampler(train, world, rank, shuffle=True, seed=7, drop_last=True)
        self.train_dl = DataLoader(train, batch_size=64, sampler=self.sampler, drop_last=True)
        self.valid_dl = DataLoader(valid, batch_size=128, sampler=DistributedSampler(valid, world, rank, shuffle=False))
        # one coin for all ranks: same seed everywhere, used for nothing else
        self.coin = torch.Generator().manual_seed(2024)

    def train_epoch(self, epoch):
        self.model.train()
        self.sampler.set_epoch(epoch)
        for x, label, value in self.train_dl:
            with_reg = torch.rand((), generator=self.coin).item() < 0.7
            self.opt.zero_grad()  #! missing_zero_grad: pass
            logits, pred = self.model(x, with_reg=with_reg)
            loss = F.cross_entropy(logits, label)
            if with_reg:
                loss = loss + 0.5 * F.mse_loss(pred, value)
            loss.backward()
            self.opt.step()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        stats = torch.zeros(3)
        for x, label, value in self.valid_dl:
            logits, pred = self.model(x)
            stats += torch.stack([(logits.argmax(-1) == label).float().sum(),
                                  ((pred - value) ** 2).sum(),
                                  torch.tensor(float(len(x)))])
        dist.all_reduce(stats)  #! rank0_metrics: dist.broadcast(stats, src=0)
        return (stats[0] / stats[2]).item(), (stats[1] / stats[2]).item()


def main():
    dist.init_process_group("gloo")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(42)
    trainer = Trainer(rank, world)
    best = None
    for epoch in range(8):
        trainer.train_epoch(epoch)
        acc, mse = trainer.evaluate()
        if best is None or acc > best[0]:
            best = (acc, epoch, copy.deepcopy(trainer.model.module.state_dict()))
        if rank == 0:
            print(f"epoch {epoch}: acc={acc:.3f} mse={mse:.3f}", flush=True)
    trainer.model.module.load_state_dict(best[2])
    acc, mse = trainer.evaluate()
    if rank == 0:
        print(f"best epoch {best[1]}: acc={acc:.3f} mse={mse:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
