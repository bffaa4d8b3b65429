"""Offline RL: discrete CQL with double Q on a fixed dataset of a windy grid; polyak targets."""
from dataclasses import dataclass
import copy, numpy as np, torch, torch.nn as nn, torch.nn.functional as F

@dataclass
class Cfg:
    size: int = 5
    gamma: float = 0.95
    alpha: float = 0.5
    tau: float = 0.02
    steps: int = 250
    batch: int = 128
    lr: float = 1e-3

cfg = Cfg(); rng = np.random.default_rng(0); torch.manual_seed(0)
MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])

def env_step(s, a):
    s2 = np.clip(s + MOVES[a] + (rng.random() < 0.1) * np.array([0, 1]), 0, cfg.size - 1)
    done = bool((s2 == cfg.size - 1).all())
    return s2, (1.0 if done else -0.02), done

buf = {k: [] for k in ("s", "a", "r", "s2", "terminated")}
for ep in range(150):
    s = rng.integers(0, cfg.size - 1, 2)
    for t in range(20):
        a = rng.integers(4) if rng.random() < 0.5 else rng.choice([0, 2])
        s2, r, done = env_step(s, a)
        for k, v in zip(buf, (s, a, r, s2, done)):
            buf[k].append(v)
        s = s2
        if done:
            break
s, a, r, s2, d = (torch.as_tensor(np.array(buf[k])) for k in buf)
s, s2 = s.float() / (cfg.size - 1) * 2 - 1, s2.float() / (cfg.size - 1) * 2 - 1
r, d = r.float(), d.float()

class TwinQ(nn.Module):
    def __init__(self):
        super().__init__()
        mk = lambda: nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
        self.q1, self.q2 = mk(), mk()
    def forward(self, x):
        return self.q1(x), self.q2(x)

q = TwinQ(); target = copy.deepcopy(q).requires_grad_(False)
opt = torch.optim.Adam(q.parameters(), lr=cfg.lr)
for it in range(cfg.steps):
    i = torch.from_numpy(rng.integers(0, len(r), cfg.batch))
    with torch.no_grad():
        n1, n2 = q(s2[i]); best = torch.minimum(n1, n2).argmax(1, keepdim=True)
        t1, t2 = target(s2[i])
        y = r[i] + cfg.gamma * (1 - d[i]) * torch.minimum(t1.gather(1, best), t2.gather(1, best)).squeeze(1)
    loss = 0.
    for out in q(s[i]):
        qa = out.gather(1, a[i][:, None]).squeeze(1)
        loss = loss + F.mse_loss(qa, y) + cfg.alpha * (out.logsumexp(1) - qa).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        for p, tp in zip(q.parameters(), target.parameters()):
            tp.lerp_(p, cfg.tau)
    if it % 50 == 0:
        print(it, f"{loss.item():.4f}")

wins = 0
for ep in range(50):
    st = rng.integers(0, cfg.size - 1, 2)
    for t in range(20):
        with torch.no_grad():
            qs = torch.minimum(*q(torch.as_tensor(st).float()[None] / (cfg.size - 1) * 2 - 1))
        st, _, done = env_step(st, int(qs.argmax()))
        if done:
            wins += 1; break
print("success", wins / 50)


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
