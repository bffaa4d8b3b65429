"""Two tasks with their own datasets and loaders share a trunk; homoscedastic uncertainty weights the losses.

fault weights_not_optimised: DK101 at parameter:s
fault no_log_term: none
fault trunk_cut_for_b: DK105
fault cycle_caches: none
"""
import itertools
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def datasets():
    """Task a: regression in large units; task b: three classes. Both depend on the same hidden projection of x."""
    g = torch.Generator().manual_seed(10)
    proj = torch.randn(16, 3, generator=g) / 4
    xa, xb = torch.randn(512, 16, generator=g), torch.randn(192, 16, generator=g)
    ha, hb = torch.tanh(xa @ proj), torch.tanh(xb @ proj)
    ya = 6.0 * ha[:, 0] - 4.0 * ha[:, 1] * ha[:, 2] + 0.5 * torch.randn(512, generator=g)
    yb = (2 * hb + 0.2 * torch.randn(192, 3, generator=g)).argmax(1)
    return TensorDataset(xa, ya), TensorDataset(xb, yb)


def forever(loader):
    while True:
        yield from loader


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(16, 48), nn.SiLU(), nn.Linear(48, 24), nn.SiLU())
        self.head_a, self.head_b = nn.Linear(24, 1), nn.Linear(24, 3)

    def task_a(self, x):
        return self.head_a(self.trunk(x)).squeeze(-1)

    def task_b(self, x):
        return self.head_b(self.trunk(x))  #! trunk_cut_for_b: return self.head_b(self.trunk(x).detach())


class Uncertainty(nn.Module):
    """exp(-s) * loss + s / 2 for each task (the regression loss carries its factor 1/2 already)."""

    def __init__(self, n):
        super().__init__()
        self.s = nn.Parameter(torch.zeros(n))

    def forward(self, losses):
        stacked = torch.stack(losses)
        return (torch.exp(-self.s) * stacked + 0.5 * self.s).sum()  #! no_log_term: return (torch.exp(-self.s) * stacked).sum()


def train():
    torch.manual_seed(10)
    set_a, set_b = datasets()
    gen = torch.Generator().manual_seed(1)
    loader_a = DataLoader(set_a, 32, shuffle=True, generator=gen)
    loader_b = DataLoader(set_b, 32, shuffle=True, generator=gen, drop_last=True)
    net, weigh = MultiTask(), Uncertainty(2)
    params = [{"params": net.parameters()}, {"params": weigh.parameters(), "lr": 2e-2, "weight_decay": 0.0}]  #! weights_not_optimised: params = [{"params": net.parameters()}]
    opt = torch.optim.AdamW(params, lr=4e-3, weight_decay=1e-3)
    stream_b = forever(loader_b)  #! cycle_caches: stream_b = itertools.cycle(loader_b)
    log = {"a": [], "b": [], "total": [], "s": []}
    for epoch in range(6):
        for (xa, ya), (xb, yb) in zip(loader_a, itertools.islice(stream_b, len(loader_a))):
            la = 0.5 * F.mse_loss(net.task_a(xa), ya)
            lb = F.cross_entropy(net.task_b(xb), yb)
            total = weigh([la, lb])
            opt.zero_grad()
            total.backward()
            opt.step()
            log["a"].append(la.item())
            log["b"].append(lb.item())
            log["total"].append(total.item())
            log["s"].append(weigh.s[0].item())
    return log


WATCH = ()
