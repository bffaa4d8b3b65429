"""PPO with GAE over a buffer of several episodes with early ends.

fault done_ignored: none
"""
import torch
import torch.nn as nn
from torch.distributions import Normal

torch.manual_seed(0)
GAMMA, LAM = 0.99, 0.95


class VecEnv:
    """Reach 0 by moving; an episode ends after 10 steps, or at once with a penalty when |x| > 2."""

    def __init__(self, n):
        self.n = n
        self.x, self.t = torch.randn(n), torch.zeros(n)

    def obs(self):
        return torch.stack([self.x, self.t / 10], 1)

    def step(self, a):
        self.x = self.x + a.clamp(-1, 1) * 0.5 + 0.05 * torch.randn(self.n)
        self.t += 1
        fell = self.x.abs() > 2
        r = -self.x.abs() - 10.0 * fell
        done = (self.t >= 10) | fell
        self.x = torch.where(done, torch.randn(self.n), self.x)
        self.t = torch.where(done, torch.zeros(self.n), self.t)
        return self.obs(), r, done.float()


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
        self.v = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
        self.log_std = nn.Parameter(torch.zeros(1))

    def forward(self, o):
        return Normal(self.pi(o).squeeze(-1), self.log_std.exp()), self.v(o).squeeze(-1)


def train():
    env, net = VecEnv(16), ActorCritic()
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    o = env.obs()
    for update in range(25):
        O, A, R, D, V, LP = [], [], [], [], [], []
        for _ in range(32):
            with torch.no_grad():
                dist, v = net(o)
                a = dist.sample()
            o2, r, d = env.step(a)
            for buf, item in zip((O, A, R, D, V, LP), (o, a, r, d, v, dist.log_prob(a))):
                buf.append(item)
            o = o2
        with torch.no_grad():
            nxt = net(o)[1]
        adv, last = [None] * 32, torch.zeros(16)
        for t in reversed(range(32)):
            mask = 1.0 - D[t]  #! done_ignored: mask = 1.0
            delta = R[t] + GAMMA * nxt * mask - V[t]
            last = delta + GAMMA * LAM * mask * last
            adv[t], nxt = last, V[t]
        O, A, V, LP, adv = torch.cat(O), torch.cat(A), torch.cat(V), torch.cat(LP), torch.cat(adv)
        ret = adv + V
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        for _ in range(4):
            dist, v = net(O)
            ratio = (dist.log_prob(A) - LP).exp()
            loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean() + 0.5 * (v - ret).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            opt.step()
        if update % 6 == 0:
            print(f"update {update} mean reward {torch.stack(R).mean():.3f} value at the start {net(torch.zeros(1, 2))[1].item():.2f} "
                  f"explained {1 - (ret - V).var() / ret.var():.2f}")


WATCH = ()
