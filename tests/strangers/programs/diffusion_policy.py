"""Diffusion policy (DDPM on action sequences, FiLM conditioning) with a bias-free warm-up EMA and DDIM sampling.

fault ema_alias: DK513 at "s.lerp_("
fault noise_no_sqrt: none
fault sample_raw_range: none
fault same_t_batch: none
"""
import copy
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

T_DIFF = 50


def cosine_betas(n, s=0.008):
    x = torch.linspace(0, 1, n + 1, dtype=torch.float64)
    bar = torch.cos((x + s) / (1 + s) * math.pi / 2) ** 2
    return (1 - bar[1:] / bar[:-1]).clamp(max=0.999).float()


class Schedule:
    def __init__(self):
        alphas = 1.0 - cosine_betas(T_DIFF)
        self.bar = torch.cumprod(alphas, 0)

    def noise(self, x0, eps, t):
        a = self.bar[t].view(-1, 1, 1)
        return a.sqrt() * x0 + (1 - a).sqrt() * eps  #! noise_no_sqrt: return a.sqrt() * x0 + (1 - a) * eps

    @torch.no_grad()
    def ddim(self, net, cond, shape, n_steps=10, generator=None):
        x = torch.randn(shape, generator=generator)
        times = torch.linspace(T_DIFF - 1, 0, n_steps).round().long()
        for i, t in enumerate(times):
            eps = net(x, t.expand(len(x)), cond)
            a = self.bar[t]
            x0 = ((x - (1 - a).sqrt() * eps) / a.sqrt()).clamp(-1, 1)
            eps = (x - a.sqrt() * x0) / (1 - a).sqrt()
            a_next = self.bar[times[i + 1]] if i + 1 < len(times) else torch.ones(())
            x = a_next.sqrt() * x0 + (1 - a_next).sqrt() * eps
        return x


class FiLMBlock(nn.Module):
    def __init__(self, c, cond):
        super().__init__()
        self.norm = nn.GroupNorm(4, c)
        self.conv1 = nn.Conv1d(c, c, 3, padding=1)
        self.conv2 = nn.Conv1d(c, c, 3, padding=1)
        self.film = nn.Linear(cond, 2 * c)
        nn.init.zeros_(self.conv2.weight)
        nn.init.zeros_(self.conv2.bias)

    def forward(self, x, c):
        scale, shift = self.film(c)[..., None].chunk(2, 1)
        h = F.mish(self.conv1(self.norm(x)) * (1 + scale) + shift)
        return x + self.conv2(h)


class NoiseNet(nn.Module):
    def __init__(self, obs_dim, act_dim, width=32):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 32), nn.Mish(), nn.Linear(32, 32))
        self.obs = nn.Linear(obs_dim, 32)
        self.inp = nn.Conv1d(act_dim, width, 3, padding=1)
        self.blocks = nn.ModuleList(FiLMBlock(width, 64) for _ in range(3))
        self.out = nn.Conv1d(width, act_dim, 1)

    def forward(self, x, t, obs):
        freqs = torch.exp(torch.linspace(0, -math.log(1000.0), 8))
        ang = t.float()[:, None] * freqs
        c = F.mish(torch.cat([self.time(torch.cat([ang.sin(), ang.cos()], -1)), self.obs(obs)], -1))
        h = self.inp(x.transpose(1, 2))
        for b in self.blocks:
            h = b(h, c)
        return self.out(h).transpose(1, 2)


class EMA:
    def __init__(self, model, power=0.75, max_decay=0.995):
        self.shadow = copy.deepcopy(model).eval().requires_grad_(False)  #! ema_alias: self.shadow = model
        self.power, self.max_decay, self.n = power, max_decay, 0

    @torch.no_grad()
    def update(self, model):
        self.n += 1
        d = min(self.max_decay, 1 - (1 + self.n) ** -self.power)
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.lerp_(p, 1 - d)


class Scaler:
    """Linear map of each action coordinate to [-1, 1] from the training minimum and maximum."""
    def __init__(self, x):
        self.lo, self.hi = x.amin((0, 1)), x.amax((0, 1))

    def fwd(self, x):
        return (x - self.lo) / (self.hi - self.lo) * 2 - 1

    def inv(self, x):
        return (x + 1) / 2 * (self.hi - self.lo) + self.lo


def data(n, g):
    obs = torch.rand(n, 4, generator=g) * 2 - 1
    s = torch.linspace(0, 1, 8)[None, :, None]
    path = obs[:, None, :2] * (1 - s) + obs[:, None, 2:] * s
    path[..., 1] += 0.4 * torch.sin(math.pi * s[..., 0])
    return obs, 10 * path + 50


def train():
    torch.manual_seed(11)
    g = torch.Generator().manual_seed(12)
    obs, actions = data(512, g)
    test_obs, test_actions = data(64, g)
    scaler, schedule = Scaler(actions), Schedule()
    x0 = scaler.fwd(actions)
    net = NoiseNet(4, 2)
    ema = EMA(net)
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3, betas=(0.95, 0.999), weight_decay=1e-6)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda k: min(1, (k + 1) / 10) * 0.5 * (1 + math.cos(math.pi * k / 240)))
    log = []
    for epoch in range(30):
        for idx in torch.randperm(512, generator=g).split(64):
            t = torch.randint(T_DIFF, (len(idx),), generator=g)  #! same_t_batch: t = torch.randint(T_DIFF, (1,), generator=torch.Generator().manual_seed(0)).expand(len(idx))
            eps = torch.randn(x0[idx].shape, generator=g)
            loss = F.mse_loss(net(schedule.noise(x0[idx], eps, t), t, obs[idx]), eps)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            ema.update(net)
            log.append(loss.item())
    plan = schedule.ddim(ema.shadow, test_obs, test_actions.shape, generator=g)
    plan = scaler.inv(plan)  #! sample_raw_range: plan = scaler.fwd(plan)
    train.score = (plan - test_actions).abs().mean().item()
    return log


WATCH = ()
