"""EDM-style score model (Karras et al. 2022) on 8x8 ring pictures, with preconditioning, an EMA of the weights and a Heun sampler.

fault inplace_noise: none
fault data_unscaled: DK301|DK319
fault ema_too_slow: none
fault init_large: DK120|DK110|DK312
"""
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

SIGMA_DATA, P_MEAN, P_STD = 0.5, -1.0, 1.2
SIGMA_MIN, SIGMA_MAX, RHO = 0.01, 20.0, 7.0


def ring_pictures(n, gen):
    """uint8 rings of random centre and radius."""
    g = torch.arange(8.0) - 3.5
    yy, xx = torch.meshgrid(g, g, indexing="ij")
    cy, cx, r = (torch.rand(3, n, 1, 1, generator=gen) * torch.tensor([2.0, 2.0, 1.5]).view(3, 1, 1, 1)).unbind(0)
    d = torch.hypot(yy - cy + 1, xx - cx + 1) - (1.5 + r)
    return (255 * torch.exp(-2 * d ** 2)).to(torch.uint8).view(n, 64)


class FourierEmb(nn.Module):
    def __init__(self, dim, scale=1.0):
        super().__init__()
        self.register_buffer("freqs", torch.randn(dim // 2) * scale)

    def forward(self, t):
        a = 2 * math.pi * t[:, None] * self.freqs
        return torch.cat([a.cos(), a.sin()], 1)


class ResMLP(nn.Module):
    def __init__(self, width, emb):
        super().__init__()
        self.norm, self.a = nn.LayerNorm(width), nn.Linear(width, width)
        self.film, self.b = nn.Linear(emb, 2 * width), nn.Linear(width, width)
        nn.init.zeros_(self.film.weight), nn.init.zeros_(self.film.bias)

    def forward(self, x, e):
        s, t = self.film(e).chunk(2, 1)
        return x + self.b(F.silu(self.a(self.norm(x)) * (1 + s) + t))


class RawNet(nn.Module):
    def __init__(self, d=64, width=128, emb=32, depth=3):
        super().__init__()
        self.emb, self.inp = FourierEmb(emb), nn.Linear(d, width)
        self.blocks = nn.ModuleList(ResMLP(width, emb) for _ in range(depth))
        self.out = nn.Linear(width, d)
        for m in (self.inp, *(b.a for b in self.blocks), *(b.b for b in self.blocks)):
            nn.init.xavier_uniform_(m.weight)  #! init_large: nn.init.normal_(m.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x, c_noise):
        e, h = self.emb(c_noise), self.inp(x)
        for b in self.blocks:
            h = b(h, e)
        return self.out(F.silu(h))


class Denoiser(nn.Module):
    """D(x, s) = c_skip x + c_out F(c_in x, c_noise)"""

    def __init__(self):
        super().__init__()
        self.raw = RawNet()

    def forward(self, x, sigma):
        s = sigma.view(-1, 1)
        total = s ** 2 + SIGMA_DATA ** 2
        c_skip, c_out, c_in = SIGMA_DATA ** 2 / total, s * SIGMA_DATA / total.sqrt(), 1 / total.sqrt()
        return c_skip * x + c_out * self.raw(c_in * x, s.flatten().log() / 4)


def edm_loss(net, clean):
    sigma = (P_STD * torch.randn(len(clean)) + P_MEAN).exp()
    noise = torch.randn_like(clean) * sigma[:, None]
    noisy = clean + noise  #! inplace_noise: noisy = clean.add_(noise)
    weight = (sigma ** 2 + SIGMA_DATA ** 2) / (sigma * SIGMA_DATA) ** 2
    return (weight[:, None] * (net(noisy, sigma) - clean) ** 2).mean()


@torch.no_grad()
def heun_sample(net, n, steps=12):
    i = torch.arange(steps) / (steps - 1)
    sig = (SIGMA_MAX ** (1 / RHO) + i * (SIGMA_MIN ** (1 / RHO) - SIGMA_MAX ** (1 / RHO))) ** RHO
    sig = torch.cat([sig, torch.zeros(1)])
    x = torch.randn(n, 64) * sig[0]
    slope = lambda x, s: (x - net(x, s.expand(n))) / s
    for s, nxt in zip(sig[:-1], sig[1:]):
        d = slope(x, s)
        x_next = x + (nxt - s) * d
        if nxt > 0:
            x_next = x + (nxt - s) * 0.5 * (d + slope(x_next, nxt))
        x = x_next
    return x


@torch.no_grad()
def update_ema(ema, net, step, decay=0.995):
    d = min(decay, (1 + step) / (10 + step))  #! ema_too_slow: d = 0.9999
    for e, p in zip(ema.parameters(), net.parameters()):
        e.lerp_(p, 1 - d)


def train():
    torch.manual_seed(17)
    gen = torch.Generator().manual_seed(17)
    raw, held = ring_pictures(1024, gen).float(), ring_pictures(512, gen).float()
    mean, std = raw.mean(), raw.std()
    to_unit = lambda x: (x - mean) / std * SIGMA_DATA  #! data_unscaled: to_unit = lambda x: x
    data, held = to_unit(raw), to_unit(held)
    net = Denoiser()
    ema = copy.deepcopy(net).requires_grad_(False).eval()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3, betas=(0.9, 0.99))
    batch, losses, step = 128, [], 0
    for epoch in range(20):
        data = data[torch.randperm(len(data))]
        for s in range(0, len(data), batch):
            loss = edm_loss(net, data[s:s + batch])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            step += 1
            update_ema(ema, net, step)
            losses.append(loss.detach())
    first, last = torch.stack(losses[:8]).mean(), torch.stack(losses[-8:]).mean()
    with torch.no_grad():
        val = torch.stack([edm_loss(ema, held.clone()) for _ in range(4)]).mean()
    pix = heun_sample(ema, 256)
    gap = (pix.mean(0) - held.mean(0)).abs().mean() + (pix.std(0) - held.std(0)).abs().mean()
    print(f"loss {first:.4f} -> {last:.4f}; ema held-out loss {val:.4f}; sample moment gap {gap:.3f}")


WATCH = ()
