"""RealNVP with ActNorm layers fitted by maximum likelihood to two moons, with a final sampling pass.

fault logdet_dropped: none
fault layers_in_list: DK101 at parameter:couplings.0.net.0.weight
fault actnorm_never_ready: none
fault sum_over_batch: none
"""
import math
import torch
import torch.nn as nn


def moons(n, g):
    t = math.pi * torch.rand(n, generator=g)
    side = torch.randint(0, 2, (n,), generator=g).float()
    x = torch.cos(t) * (1 - 2 * side) + side
    y = torch.sin(t) * (1 - 2 * side) + 0.5 * side
    return torch.stack([x, y], 1) + 0.07 * torch.randn(n, 2, generator=g)


class ActNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(d))
        self.shift = nn.Parameter(torch.zeros(d))
        self.register_buffer("ready", torch.tensor(False))

    def forward(self, x):
        if self.training and not self.ready:
            with torch.no_grad():
                self.log_scale.copy_(-torch.log(x.std(0) + 1e-6))
                self.shift.copy_(-x.mean(0))
                self.ready.fill_(True)  #! actnorm_never_ready: pass
        return (x + self.shift) * self.log_scale.exp(), self.log_scale.sum().expand(len(x))

    def inverse(self, y):
        return y * (-self.log_scale).exp() - self.shift


class Coupling(nn.Module):
    def __init__(self, d, flip, h=32):
        super().__init__()
        m = torch.arange(d) % 2
        self.register_buffer("mask", (1 - m if flip else m).float())
        self.net = nn.Sequential(nn.Linear(d, h), nn.LeakyReLU(), nn.Linear(h, h), nn.LeakyReLU(), nn.Linear(h, 2 * d))
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def st(self, x):
        s, t = self.net(x * self.mask).chunk(2, -1)
        free = 1 - self.mask
        return 2 * torch.tanh(s / 2) * free, t * free

    def forward(self, x):
        s, t = self.st(x)
        return x * s.exp() + t, s.sum(-1)

    def inverse(self, y):
        s, t = self.st(y)
        return (y - t) * (-s).exp()


class Flow(nn.Module):
    def __init__(self, d=2, k=6):
        super().__init__()
        self.norms = nn.ModuleList(ActNorm(d) for _ in range(k))
        self.couplings = nn.ModuleList(Coupling(d, i % 2 == 0) for i in range(k))  #! layers_in_list: self.couplings = [Coupling(d, i % 2 == 0) for i in range(k)]
        self.base = torch.distributions.Normal(0.0, 1.0)

    def log_prob(self, x):
        logdet = x.new_zeros(len(x))
        for norm, coupling in zip(self.norms, self.couplings):
            x, ld = norm(x)
            logdet = logdet + ld
            x, ld = coupling(x)
            logdet = logdet + ld  #! logdet_dropped: pass
        return self.base.log_prob(x).sum(-1) + logdet  #! sum_over_batch: return self.base.log_prob(x).sum() + logdet

    @torch.no_grad()
    def sample(self, n):
        z = torch.randn(n, 2)
        for norm, coupling in zip(reversed(self.norms), reversed(self.couplings)):
            z = norm.inverse(coupling.inverse(z))
        return z


def train():
    torch.manual_seed(4)
    g = torch.Generator().manual_seed(9)
    test = moons(400, g)
    flow = Flow()
    opt = torch.optim.Adam(flow.parameters(), lr=6e-3)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=6e-3, total_steps=150, pct_start=0.1)
    nll = []
    for step in range(150):
        loss = -flow.log_prob(moons(128, g)).mean()
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(flow.parameters(), 10.0)
        opt.step()
        sched.step()
        nll.append(loss.item())
    flow.eval()
    with torch.no_grad():
        held_out = -flow.log_prob(test).mean().item()
    return nll, held_out, flow.sample(200).std(0).tolist()


WATCH = ()
