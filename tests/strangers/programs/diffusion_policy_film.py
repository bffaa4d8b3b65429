"""Diffusion policy: min-max normaliser in the model, FiLM 1-D conv U-Net, EMA callable class, warm-up LambdaLR per step, DDIM inference."""
import math, copy, torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(5)
H, AD, OD, TS = 8, 2, 3, 50


def demos(n):
    o = torch.rand(n, OD) * torch.tensor([4., 4., 1.]) + torch.tensor([0., 10., 0.])
    mode = (torch.rand(n) < .5).float() * 2 - 1
    t = torch.linspace(0, 1, H)
    x = o[:, :1] + (2. - o[:, :1]) * t
    y = o[:, 1:2] + (12. - o[:, 1:2]) * t + mode[:, None] * o[:, 2:] * torch.sin(math.pi * t)
    return o, torch.stack([x, y], -1)


class LinearNormalizer(nn.Module):
    def __init__(self, **data):
        super().__init__()
        for k, v in data.items():
            v = v.reshape(-1, v.shape[-1])
            self.register_buffer(k + "_lo", v.amin(0)); self.register_buffer(k + "_hi", v.amax(0))
    def normalize(self, k, v):
        lo, hi = getattr(self, k + "_lo"), getattr(self, k + "_hi")
        return (v - lo) / (hi - lo) * 2 - 1
    def unnormalize(self, k, v):
        lo, hi = getattr(self, k + "_lo"), getattr(self, k + "_hi")
        return (v + 1) / 2 * (hi - lo) + lo


class Res(nn.Module):
    def __init__(self, i, o, c):
        super().__init__()
        self.c1 = nn.Sequential(nn.Conv1d(i, o, 3, padding=1), nn.GroupNorm(4, o), nn.Mish())
        self.c2 = nn.Sequential(nn.Conv1d(o, o, 3, padding=1), nn.GroupNorm(4, o), nn.Mish())
        self.film = nn.Sequential(nn.Mish(), nn.Linear(c, 2 * o), nn.Unflatten(-1, (-1, 1)))
        self.skip = nn.Conv1d(i, o, 1) if i != o else nn.Identity()
    def forward(self, x, c):
        s, b = self.film(c).chunk(2, 1)
        return self.c2(self.c1(x) * s + b) + self.skip(x)


class UNet(nn.Module):
    def __init__(self, w=24, c=48):
        super().__init__()
        self.cond = nn.Sequential(nn.Linear(OD + 16, c), nn.Mish(), nn.Linear(c, c))
        self.d1, self.d2 = Res(AD, w, c), Res(w, 2 * w, c)
        self.down, self.up = nn.Conv1d(w, w, 3, 2, 1), nn.ConvTranspose1d(2 * w, w, 4, 2, 1)
        self.u1, self.out = Res(2 * w, w, c), nn.Conv1d(w, AD, 1)
    def forward(self, sample, timestep, global_cond):
        f = torch.exp(torch.arange(8) * -(math.log(1e4) / 7)) * timestep[:, None]
        c = self.cond(torch.cat([global_cond, f.sin(), f.cos()], -1))
        h = self.d1(sample.mT, c)
        m = self.up(self.d2(self.down(h), c))
        return self.out(self.u1(torch.cat([m, h], 1), c)).mT


class Policy(nn.Module):
    def __init__(self, normalizer):
        super().__init__()
        self.normalizer, self.net = normalizer, UNet()
        t = torch.linspace(0, 1, TS + 1)
        f = torch.cos((t + .008) / 1.008 * math.pi / 2) ** 2
        self.register_buffer("ab", (f / f[0])[1:].clamp(min=1e-3))
    def compute_loss(self, batch):
        a, o = self.normalizer.normalize("action", batch["action"]), self.normalizer.normalize("obs", batch["obs"])
        t, eps = torch.randint(0, TS, (len(a),)), torch.randn_like(a)
        ab = self.ab[t][:, None, None]
        return F.mse_loss(self.net(ab.sqrt() * a + (1 - ab).sqrt() * eps, t, o), eps)
    @torch.no_grad()
    def predict_action(self, obs, steps=10):
        o, x = self.normalizer.normalize("obs", obs), torch.randn(len(obs), H, AD)
        ts = torch.linspace(TS - 1, 0, steps).long()
        for i, t in enumerate(ts):
            ab, prev = self.ab[t], self.ab[ts[i + 1]] if i + 1 < steps else torch.tensor(1.)
            e = self.net(x, t.expand(len(obs)), o)
            x0 = ((x - (1 - ab).sqrt() * e) / ab.sqrt()).clamp(-1, 1)
            e = (x - ab.sqrt() * x0) / (1 - ab).sqrt()
            x = prev.sqrt() * x0 + (1 - prev).sqrt() * e
        return self.normalizer.unnormalize("action", x)


class EMA:
    def __init__(self, model, power=.75):
        self.m, self.n, self.power = copy.deepcopy(model).eval().requires_grad_(False), 0, power
    def __call__(self, model):
        self.n += 1
        d = max(0., 1 - (1 + self.n) ** -self.power)
        for (k, a), b in zip(self.m.state_dict().items(), model.state_dict().values()):
            a.copy_(a * d + b * (1 - d)) if a.is_floating_point() else a.copy_(b)


def train():
    obs, act = demos(1500)
    policy = Policy(LinearNormalizer(obs=obs, action=act))
    ema = EMA(policy)
    opt = torch.optim.AdamW(policy.net.parameters(), 2e-3, weight_decay=1e-6)
    total = 4 * math.ceil(len(obs) / 64)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1., s / 10) * .5 * (1 + math.cos(math.pi * min(1., s / total))))
    for epoch in range(4):
        tot = []
        for idx in torch.randperm(len(obs)).split(64):
            loss = policy.compute_loss({"obs": obs[idx], "action": act[idx]})
            loss.backward()
            opt.step(); sched.step(); opt.zero_grad()
            ema(policy)
            tot.append(loss.item())
        o = demos(64)[0]
        err = (ema.m.predict_action(o)[:, -1] - torch.tensor([2., 12.])).norm(dim=1).mean()
        print(f"epoch {epoch} loss {sum(tot) / len(tot):.3f} endpoint error {err:.3f}")


WATCH = ()
