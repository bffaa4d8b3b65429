"""TD3 on a small continuous reaching task with a preallocated replay buffer, twin critics and target smoothing.

fault done_on_timeout: none
fault target_max: none
fault actor_sign: none
fault polyak_swapped: none
"""
import copy
import torch
from torch import nn
from torch.nn import functional as F


class Reach:
    """Bring a damped mass to the target; the episode terminates on leaving the box and is truncated after 25 steps."""
    def __init__(self, g):
        self.g = g

    def reset(self):
        self.x, self.v, self.k = torch.rand(2, generator=self.g) * 1.6 - 0.8, torch.zeros(2), 0
        return torch.cat([self.x, self.v])

    def step(self, a):
        self.v = 0.7 * self.v + 0.15 * a
        self.x = self.x + self.v
        self.k += 1
        terminated = bool(self.x.abs().max() > 1.0)
        reward = 1.0 - self.x.norm().item() - 0.05 * a.pow(2).sum().item() - (5.0 if terminated else 0.0)
        return torch.cat([self.x, self.v]), reward, terminated, self.k >= 25


class Buffer:
    def __init__(self, size, g):
        self.s, self.a, self.s2 = torch.empty(size, 4), torch.empty(size, 2), torch.empty(size, 4)
        self.r, self.d = torch.empty(size, 1), torch.empty(size, 1)
        self.i, self.n, self.g = 0, 0, g

    def add(self, s, a, r, s2, d):
        self.s[self.i], self.a[self.i], self.s2[self.i], self.r[self.i], self.d[self.i] = s, a, s2, r, float(d)
        self.i = (self.i + 1) % len(self.s)
        self.n = min(self.n + 1, len(self.s))

    def sample(self, b):
        j = torch.randint(self.n, (b,), generator=self.g)
        return self.s[j], self.a[j], self.r[j], self.s2[j], self.d[j]


class Twin(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.ModuleList(nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1)) for _ in range(2))

    def forward(self, s, a):
        x = torch.cat([s, a], -1)
        return self.q[0](x), self.q[1](x)


@torch.no_grad()
def polyak(net, target, tau=0.02):
    for p, t in zip(net.parameters(), target.parameters()):
        t.mul_(1 - tau).add_(p, alpha=tau)  #! polyak_swapped: p.mul_(1 - tau).add_(t, alpha=tau)


@torch.no_grad()
def score(actor, seed=123, n=5):
    env, total = Reach(torch.Generator().manual_seed(seed)), 0.0
    for _ in range(n):
        s, over = env.reset(), False
        while not over:
            s, r, term, trunc = env.step(actor(s))
            total += r
            over = term or trunc
    return total / n


def train(frames=800, start=200, gamma=0.95):
    torch.manual_seed(31)
    g = torch.Generator().manual_seed(32)
    env, buf = Reach(g), Buffer(5000, g)
    actor = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2), nn.Tanh())
    critic = Twin()
    actor_t, critic_t = (copy.deepcopy(m).requires_grad_(False) for m in (actor, critic))
    opt_a = torch.optim.Adam(actor.parameters(), 1e-3)
    opt_c = torch.optim.Adam(critic.parameters(), 2e-3)
    before, td = score(actor), []
    s = env.reset()
    for frame in range(frames):
        if frame < start:
            a = torch.rand(2, generator=g) * 2 - 1
        else:
            with torch.no_grad():
                a = (actor(s) + 0.2 * torch.randn(2, generator=g)).clamp(-1, 1)
        s2, r, terminated, truncated = env.step(a)
        buf.add(s, a, r, s2, terminated)  #! done_on_timeout: buf.add(s, a, r, s2, terminated or truncated)
        s = env.reset() if terminated or truncated else s2
        if frame < start:
            continue
        bs, ba, br, bs2, bd = buf.sample(64)
        with torch.no_grad():
            noise = (0.2 * torch.randn(ba.shape, generator=g)).clamp(-0.5, 0.5)
            q1, q2 = critic_t(bs2, (actor_t(bs2) + noise).clamp(-1, 1))
            target = br + gamma * (1 - bd) * torch.min(q1, q2)  #! target_max: target = br + gamma * (1 - bd) * torch.max(q1, q2)
        q1, q2 = critic(bs, ba)
        loss = F.mse_loss(q1, target) + F.mse_loss(q2, target)
        opt_c.zero_grad()
        loss.backward()
        opt_c.step()
        td.append(loss.item())
        if frame % 2 == 0:
            actor_loss = -critic(bs, actor(bs))[0].mean()  #! actor_sign: actor_loss = critic(bs, actor(bs))[0].mean()
            opt_a.zero_grad()
            actor_loss.backward()
            opt_a.step()
            polyak(critic, critic_t)
            polyak(actor, actor_t)
    train.score = before, score(actor)
    return td


WATCH = ()
