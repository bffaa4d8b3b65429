"""Soft actor-critic on made-up transitions: three optimizers, twin critics, targets averaged, learned temperature."""
import copy, torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(36)
mlp = lambda i, o: nn.Sequential(nn.Linear(i, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, o))
class SAC(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor, self.q1, self.q2 = mlp(4, 4), mlp(6, 1), mlp(6, 1)
        self.t1, self.t2 = copy.deepcopy(self.q1), copy.deepcopy(self.q2)
        self.t1.requires_grad_(False); self.t2.requires_grad_(False)
        self.log_alpha = nn.Parameter(torch.zeros(1))
    def pi(self, s):
        mu, ls = self.actor(s).chunk(2, -1); ls = ls.clamp(-5, 2)
        d = torch.distributions.Normal(mu, ls.exp()); u = d.rsample(); a = u.tanh()
        return a, (d.log_prob(u) - torch.log(1 - a.pow(2) + 1e-6)).sum(-1)
agent = SAC()
oa = torch.optim.Adam(agent.actor.parameters(), 3e-4); oc = torch.optim.Adam([*agent.q1.parameters(), *agent.q2.parameters()], 3e-4); ot = torch.optim.Adam([agent.log_alpha], 3e-4)
def batch(n=32):
    s = torch.randn(n, 4); a = torch.rand(n, 2) * 2 - 1
    return s, a, -(s[:, :2] - a).pow(2).sum(1), s + 0.1 * torch.randn(n, 4), (torch.rand(n) < 0.05).float()
def train():
    for _ in range(30):
        s, a, r, s2, d = batch()
        with torch.no_grad():
            a2, lp2 = agent.pi(s2); x2 = torch.cat([s2, a2], 1)
            q = torch.min(agent.t1(x2), agent.t2(x2)).squeeze(-1) - agent.log_alpha.exp() * lp2
            y = r + 0.99 * (1 - d) * q
        x = torch.cat([s, a], 1)
        lc = F.mse_loss(agent.q1(x).squeeze(-1), y) + F.mse_loss(agent.q2(x).squeeze(-1), y)
        oc.zero_grad(); lc.backward(); oc.step()
        na, lp = agent.pi(s); x = torch.cat([s, na], 1)
        la = (agent.log_alpha.exp().detach() * lp - torch.min(agent.q1(x), agent.q2(x)).squeeze(-1)).mean()
        oa.zero_grad(); la.backward(); oa.step()
        lt = -(agent.log_alpha * (lp.detach() - 2)).mean()
        ot.zero_grad(); lt.backward(); ot.step()
        with torch.no_grad():
            for t, q in ((agent.t1, agent.q1), (agent.t2, agent.q2)):
                for pt, pq in zip(t.parameters(), q.parameters()): pt.lerp_(pq, 0.005)
WATCH = (agent, [oa, oc, ot])
