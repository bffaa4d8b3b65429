"""RealNVP trained through flow.log_prob (never forward): ActNorm with data-dependent initialisation, alternating masks, two-moons data, own Lion optimizer."""
import math, torch
from torch import nn
from torch.optim.optimizer import Optimizer

torch.manual_seed(4)


class Lion(Optimizer):
    def __init__(self, params, lr=1e-3, betas=(.9, .99), wd=0.):
        super().__init__(params, dict(lr=lr, betas=betas, wd=wd))

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            b1, b2 = g["betas"]
            for p in filter(lambda p: p.grad is not None, g["params"]):
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - g["lr"] * g["wd"]).add_(torch.lerp(p.grad, m, b1).sign_(), alpha=-g["lr"])
                m.lerp_(p.grad, 1 - b2)


class ActNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.loc, self.log_scale = nn.Parameter(torch.zeros(d)), nn.Parameter(torch.zeros(d))
        self.register_buffer("ready", torch.tensor(False))
    def inverse(self, x):
        if not self.ready:
            with torch.no_grad():
                self.loc.copy_(x.mean(0)); self.log_scale.copy_(x.std(0).log()); self.ready.fill_(True)
        return (x - self.loc) * (-self.log_scale).exp(), -self.log_scale.sum().expand(len(x))
    def forward(self, z):
        return z * self.log_scale.exp() + self.loc


class Coupling(nn.Module):
    def __init__(self, d, flip, w=48):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(d // 2, w), nn.SiLU(), nn.Linear(w, w), nn.SiLU(), nn.Linear(w, d))
        nn.init.zeros_(self.net[-1].weight); nn.init.zeros_(self.net[-1].bias)
    def split(self, x):
        a, b = x.chunk(2, 1)
        return (b, a) if self.flip else (a, b)
    def join(self, a, b):
        return torch.cat((b, a) if self.flip else (a, b), 1)
    def inverse(self, x):
        a, b = self.split(x)
        s, t = self.net(a).chunk(2, 1)
        s = 2 * torch.tanh(s / 2)
        return self.join(a, (b - t) * (-s).exp()), -s.sum(1)
    def forward(self, z):
        a, b = self.split(z)
        s, t = self.net(a).chunk(2, 1)
        return self.join(a, b * (2 * torch.tanh(s / 2)).exp() + t)


class Flow(nn.Module):
    def __init__(self, d=2, n=5):
        super().__init__()
        self.layers = nn.ModuleList(m for i in range(n) for m in (ActNorm(d), Coupling(d, i % 2)))
        self.register_buffer("zero", torch.zeros(d)); self.register_buffer("one", torch.ones(d))
    def log_prob(self, x):
        ld = 0.
        for l in self.layers:
            x, d = l.inverse(x)
            ld = ld + d
        return torch.distributions.Normal(self.zero, self.one).log_prob(x).sum(1) + ld
    @torch.no_grad()
    def sample(self, n):
        z = torch.randn(n, 2)
        for l in reversed(self.layers):
            z = l(z)
        return z


def moons(n):
    t, k = torch.rand(n) * math.pi, torch.rand(n) < .5
    x = torch.where(k[:, None], torch.stack([t.cos(), t.sin()], 1), torch.stack([1 - t.cos(), .5 - t.sin()], 1))
    return x + .08 * torch.randn(n, 2)


def train():
    flow = Flow()
    opt = Lion(flow.parameters(), lr=5e-4)
    hist = []
    for it in range(250):
        loss = flow.log_prob(moons(256)).mean().neg()
        loss.backward()
        nn.utils.clip_grad_value_(flow.parameters(), 5.)
        opt.step()
        for p in flow.parameters():
            p.grad = None
        hist.append(loss.item())
        if it % 60 == 59:
            with torch.no_grad():
                print(it, "nll", sum(hist[-20:]) / 20, "val", -flow.log_prob(moons(512)).mean().item())
    print(hist[0], flow.sample(1000).mean(0))


WATCH = ()
