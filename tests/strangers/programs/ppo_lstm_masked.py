"""PPO with an LSTM policy, action masks and episode-boundary resets; T-maze. KL early stop, value clipping, linear lr annealing."""
import numpy as np, torch, torch.nn as nn
from torch.distributions import Categorical

class TMaze:
    def __init__(self, rng, length=4): self.rng, self.L = rng, length
    def reset(self):
        self.pos, self.goal = 0, self.rng.integers(2)
        return self.obs()
    def obs(self):
        o = np.zeros(5, np.float32)
        if self.pos == 0: o[self.goal] = 1
        o[2] = self.pos / self.L; o[3] = float(self.pos == self.L); o[4] = 1
        return o
    def mask(self):
        return np.array([self.pos < self.L, self.pos == self.L, self.pos == self.L, self.pos > 0])   # forward, up, down, back
    def step(self, a):
        if a == 0: self.pos += 1
        if a == 3: self.pos -= 1
        if a in (1, 2):
            return self.obs(), (1.0 if a - 1 == self.goal else -0.5), True
        return self.obs(), -0.02, False

class Net(nn.Module):
    def __init__(self, h=32):
        super().__init__()
        self.enc, self.lstm = nn.Linear(5, h), nn.LSTM(h, h)
        self.pi, self.v = nn.Linear(h, 4), nn.Linear(h, 1)
        nn.init.orthogonal_(self.pi.weight, 0.01); nn.init.zeros_(self.pi.bias); nn.init.orthogonal_(self.v.weight, 1.0)
    def forward(self, obs, starts, mask, state):       # [T,N,*]
        x = torch.tanh(self.enc(obs)); outs = []
        for t in range(obs.shape[0]):
            keep = (1 - starts[t])[None, :, None]
            y, state = self.lstm(x[t:t + 1], (state[0] * keep, state[1] * keep))
            outs.append(y)
        y = torch.cat(outs)
        logits = self.pi(y).masked_fill(~mask, torch.finfo(torch.float32).min)
        return Categorical(logits=logits), self.v(y).squeeze(-1), state

torch.manual_seed(0)
N, T, UPDATES, EPOCHS = 16, 24, 25, 4
envs = [TMaze(np.random.default_rng(i)) for i in range(N)]
net = Net(); opt = torch.optim.Adam(net.parameters(), lr=3e-3, eps=1e-5)
obs = np.stack([e.reset() for e in envs]); start = np.ones(N, np.float32)
state = (torch.zeros(1, N, 32), torch.zeros(1, N, 32))
for u in range(UPDATES):
    for g in opt.param_groups: g["lr"] = 3e-3 * (1 - u / UPDATES)
    init = state
    roll = {k: [] for k in "o s m a lp v r d".split()}
    for t in range(T):
        m = np.stack([e.mask() for e in envs])
        o_, s_, m_ = torch.from_numpy(obs)[None], torch.from_numpy(start)[None], torch.from_numpy(m)[None]
        with torch.no_grad():
            dist, v, state = net(o_, s_, m_, state)
            a = dist.sample()
            lp = dist.log_prob(a)
        nobs, rew, done = [], np.zeros(N, np.float32), np.zeros(N, np.float32)
        for i, e in enumerate(envs):
            o, r, d = e.step(int(a[0, i])); rew[i], done[i] = r, d
            nobs.append(e.reset() if d else o)
        for k, x in zip(roll, (o_[0], s_[0], m_[0], a[0], lp[0], v[0], torch.from_numpy(rew), torch.from_numpy(done))): roll[k].append(x)
        obs, start = np.stack(nobs), done
    R = {k: torch.stack(v) for k, v in roll.items()}
    with torch.no_grad():
        m = torch.from_numpy(np.stack([e.mask() for e in envs]))[None]
        _, last, _ = net(torch.from_numpy(obs)[None], torch.from_numpy(start)[None], m, state)
    adv, g = torch.zeros(T, N), torch.zeros(N)
    for t in reversed(range(T)):
        nv = last[0] if t == T - 1 else R["v"][t + 1]
        g = R["r"][t] + 0.99 * nv * (1 - R["d"][t]) - R["v"][t] + 0.99 * 0.95 * (1 - R["d"][t]) * g
        adv[t] = g
    ret = adv + R["v"]
    for ep in range(EPOCHS):
        for idx in torch.randperm(N).split(8):
            dist, v, _ = net(R["o"][:, idx], R["s"][:, idx], R["m"][:, idx], tuple(x[:, idx] for x in init))
            lr = dist.log_prob(R["a"][:, idx]) - R["lp"][:, idx]
            A = adv[:, idx]; A = (A - A.mean()) / (A.std() + 1e-8)
            pg = -torch.min(lr.exp() * A, lr.exp().clamp(0.8, 1.2) * A).mean()
            vc = R["v"][:, idx] + (v - R["v"][:, idx]).clamp(-0.2, 0.2)
            vf = 0.5 * torch.max((v - ret[:, idx]) ** 2, (vc - ret[:, idx]) ** 2).mean()
            loss = pg + 0.5 * vf - 0.01 * dist.entropy().mean()
            opt.zero_grad(); loss.backward(); nn.utils.clip_grad_norm_(net.parameters(), 0.5); opt.step()
        if ((lr.exp() - 1) - lr).mean() > 0.03: break
    if u % 6 == 0 or u == UPDATES - 1:
        print(u, f"return/episode {(R['r'].sum() / R['d'].sum().clamp(min=1)).item():.3f} loss {loss.item():.4f}")


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
