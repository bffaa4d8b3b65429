"""Diffusion policy: a conditional 1-D conv U-Net denoises action sequences under a cosine DDPM schedule, with an EMA copy for sampling.

fault ema_self: DK513 at "e.mul_(decay)"
fault reshape_axes: DK324
fault same_t: none
fault stale_grads: DK501
"""
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class MinMax(nn.Module):
    """Scales every dimension to [-1, 1]; limits are kept as buffers so that they travel with the checkpoint."""

    def __init__(self, x):
        super().__init__()
        flat = x.reshape(-1, x.shape[-1])
        self.register_buffer("lo", flat.min(0).values)
        self.register_buffer("hi", flat.max(0).values)

    def norm(self, x):
        return 2 * (x - self.lo) / (self.hi - self.lo).clamp_min(1e-6) - 1

    def unnorm(self, x):
        return (x + 1) / 2 * (self.hi - self.lo) + self.lo


class Demos(Dataset):
    """Curved pushes from the agent's place to a target in pixels of a 512 x 512 board; they pass left or right of the middle."""

    def __init__(self, n, seed, horizon=16):
        g = torch.Generator().manual_seed(seed)
        start = torch.rand(n, 2, generator=g) * 400 + 56
        goal = torch.rand(n, 2, generator=g) * 400 + 56
        s = torch.linspace(0, 1, horizon)[None, :, None]
        side = torch.where(torch.rand(n, 1, 1, generator=g) < 0.5, 1.0, -1.0)
        d = goal - start
        ortho = torch.stack([-d[:, 1], d[:, 0]], -1)
        self.obs = torch.cat([start, goal], -1)
        self.actions = start[:, None] + s * d[:, None] + 0.15 * side * torch.sin(math.pi * s) * ortho[:, None]

    def __len__(self):
        return len(self.obs)

    def __getitem__(self, i):
        return {"obs": self.obs[i], "actions": self.actions[i]}


class ResBlock1d(nn.Module):
    def __init__(self, cin, cout, cond):
        super().__init__()
        self.c1, self.c2 = nn.Conv1d(cin, cout, 3, padding=1), nn.Conv1d(cout, cout, 3, padding=1)
        self.g1, self.g2 = nn.GroupNorm(4, cout), nn.GroupNorm(4, cout)
        self.film = nn.Sequential(nn.Mish(), nn.Linear(cond, 2 * cout))
        self.skip = nn.Conv1d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, cond):
        h = F.mish(self.g1(self.c1(x)))
        scale, bias = self.film(cond)[..., None].chunk(2, 1)
        h = h * (1 + scale) + bias
        return F.mish(self.g2(self.c2(h))) + self.skip(x)


class UNet1d(nn.Module):
    def __init__(self, adim=2, odim=4, dims=(32, 64), cond=64):
        super().__init__()
        self.t_mlp = nn.Sequential(nn.Linear(32, cond), nn.Mish(), nn.Linear(cond, cond))
        self.o_mlp = nn.Sequential(nn.Linear(odim, cond), nn.Mish(), nn.Linear(cond, cond))
        a, b = dims
        c = 2 * cond
        self.d1, self.down, self.d2 = ResBlock1d(adim, a, c), nn.Conv1d(a, a, 3, 2, 1), ResBlock1d(a, b, c)
        self.mid = ResBlock1d(b, b, c)
        self.up, self.u1 = nn.ConvTranspose1d(b, a, 4, 2, 1), ResBlock1d(2 * a, a, c)
        self.out = nn.Conv1d(a, adim, 1)
        self.register_buffer("freqs", torch.exp(-math.log(1e4) * torch.arange(16) / 16))

    def forward(self, actions, t, obs):
        ang = t[:, None].float() * self.freqs
        cond = torch.cat([self.t_mlp(torch.cat([ang.sin(), ang.cos()], -1)), self.o_mlp(obs)], -1)
        x = actions.permute(0, 2, 1)  #! reshape_axes: x = actions.reshape(actions.shape[0], actions.shape[2], actions.shape[1])
        skip = self.d1(x, cond)
        h = self.mid(self.d2(self.down(skip), cond), cond)
        h = self.u1(torch.cat([self.up(h), skip], 1), cond)
        return self.out(h).permute(0, 2, 1)


class DDPM:
    def __init__(self, steps=50):
        s = torch.arange(steps + 1) / steps
        f = torch.cos((s + 0.008) / 1.008 * math.pi / 2) ** 2
        self.betas = (1 - f[1:] / f[:-1]).clamp(max=0.999)
        self.abar = torch.cumprod(1 - self.betas, 0)
        self.steps = steps

    def add_noise(self, x, eps, t):
        ab = self.abar[t][:, None, None]
        return ab.sqrt() * x + (1 - ab).sqrt() * eps

    @torch.no_grad()
    def sample(self, net, obs, shape):
        x = torch.randn(shape)
        for k in reversed(range(self.steps)):
            t = torch.full((shape[0],), k)
            ab, prev = self.abar[k], self.abar[k - 1] if k else torch.tensor(1.0)
            x0 = ((x - (1 - ab).sqrt() * net(x, t, obs)) / ab.sqrt()).clamp(-1, 1)
            mean = prev.sqrt() * self.betas[k] / (1 - ab) * x0 + (1 - self.betas[k]).sqrt() * (1 - prev) / (1 - ab) * x
            x = mean + ((1 - prev) / (1 - ab) * self.betas[k]).sqrt() * torch.randn_like(x) if k else mean
        return x


class EMA:
    def __init__(self, net, max_decay=0.98, power=0.75):
        self.net = copy.deepcopy(net).eval().requires_grad_(False)
        self.max_decay, self.power, self.n = max_decay, power, 0

    @torch.no_grad()
    def step(self, net):
        self.n += 1
        decay = min(self.max_decay, 1 - (1 + self.n) ** -self.power)
        for e, p in zip(self.net.parameters(), net.parameters()):
            e.mul_(decay).add_(p, alpha=1 - decay)


class Workspace:
    def __init__(self, seed=42, epochs=8, batch=64):
        torch.manual_seed(seed)
        self.train_set, self.val_set = Demos(960, seed=1), Demos(64, seed=2)
        self.loader = DataLoader(self.train_set, batch, shuffle=True, drop_last=True)
        self.anorm, self.onorm = MinMax(self.train_set.actions), MinMax(self.train_set.obs)
        self.net, self.ddpm, self.epochs = UNet1d(), DDPM(), epochs
        self.ema = EMA(self.net)
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=2e-3, weight_decay=1e-6)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, T_max=epochs * len(self.loader))

    def loss(self, batch):
        actions, obs = self.anorm.norm(batch["actions"]), self.onorm.norm(batch["obs"])
        eps = torch.randn_like(actions)
        t = torch.randint(0, self.ddpm.steps, (len(obs),))  #! same_t: t = torch.randint(0, self.ddpm.steps, (1,)).expand(len(obs))
        return F.mse_loss(self.net(self.ddpm.add_noise(actions, eps, t), t, obs), eps)

    def run(self):
        for epoch in range(self.epochs):
            total = 0.0
            for batch in self.loader:
                loss = self.loss(batch)
                self.opt.zero_grad()  #! stale_grads: pass
                loss.backward()
                self.opt.step()
                self.sched.step()
                self.ema.step(self.net)  #! ema_self: self.ema.step(self.ema.net)
                total += loss.item()
            print(f"epoch {epoch} noise mse {total / len(self.loader):.3f}")
        out = self.anorm.unnorm(self.ddpm.sample(self.ema.net, self.onorm.norm(self.val_set.obs), (64, 16, 2)))
        ends = (out[:, -1] - self.val_set.obs[:, 2:]).norm(dim=-1).mean()
        print(f"ema policy: mean distance of the last action to the goal {ends.item():.1f} px")


def train():
    Workspace().run()


WATCH = ()
