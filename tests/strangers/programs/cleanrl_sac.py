"""SAC (CleanRL): twin Q, target copies, tanh-squashed actor, automatic entropy tuning, three optimizers."""
import math, random
import numpy as np, torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(3); np.random.seed(3); torch.manual_seed(3)


class ReplayBuffer:
    def __init__(self, cap, o, a):
        self.o, self.o2 = np.zeros((cap, o), np.float32), np.zeros((cap, o), np.float32)
        self.a, self.r, self.d = np.zeros((cap, a), np.float32), np.zeros(cap, np.float32), np.zeros(cap, np.float32)
        self.i, self.n, self.cap = 0, 0, cap
    def add(self, *x):
        self.o[self.i], self.o2[self.i], self.a[self.i], self.r[self.i], self.d[self.i] = x
        self.i = (self.i + 1) % self.cap; self.n = min(self.n + 1, self.cap)
    def sample(self, b):
        j = np.random.randint(0, self.n, b)
        return [torch.from_numpy(x[j]) for x in (self.o, self.o2, self.a, self.r, self.d)]


class SoftQ(nn.Module):
    def __init__(self, o, a):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(o + a, 64), nn.Linear(64, 64), nn.Linear(64, 1)
    def forward(self, x, a):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(torch.cat([x, a], 1))))))


class Actor(nn.Module):
    def __init__(self, o, a):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(o, 64), nn.Linear(64, 64)
        self.fc_mean, self.fc_logstd = nn.Linear(64, a), nn.Linear(64, a)
        self.register_buffer("action_scale", torch.tensor(2.))
    def forward(self, x):
        x = F.relu(self.fc2(F.relu(self.fc1(x))))
        ls = torch.tanh(self.fc_logstd(x))
        return self.fc_mean(x), -5 + 0.5 * 7 * (ls + 1)
    def get_action(self, x):
        mean, ls = self(x)
        n = torch.distributions.Normal(mean, ls.exp())
        xt = n.rsample()
        y = torch.tanh(xt)
        lp = n.log_prob(xt) - torch.log(self.action_scale * (1 - y.pow(2)) + 1e-6)
        return y * self.action_scale, lp.sum(1, keepdim=True)


def env():
    """pendulum-like swing-up"""
    def reset():
        nonlocal th, w, t
        th, w, t = np.random.uniform(-math.pi, math.pi), np.random.uniform(-1, 1), 0
        return np.array([math.cos(th), math.sin(th), w], np.float32)
    def step(u):
        nonlocal th, w, t
        cost = ((th + math.pi) % (2 * math.pi) - math.pi) ** 2 + .1 * w ** 2 + .001 * u ** 2
        w = float(np.clip(w + (15 * math.sin(th) + 3 * u) * .05, -8, 8)); th += w * .05; t += 1
        return np.array([math.cos(th), math.sin(th), w], np.float32), -cost / 10, t >= 100
    th = w = t = 0
    return reset, step


def train():
    reset, step = env()
    actor = Actor(3, 1)
    qf1, qf2, qf1_t, qf2_t = (SoftQ(3, 1) for _ in range(4))
    qf1_t.load_state_dict(qf1.state_dict()); qf2_t.load_state_dict(qf2.state_dict())
    q_opt = torch.optim.Adam(list(qf1.parameters()) + list(qf2.parameters()), lr=1e-3)
    actor_opt = torch.optim.Adam(list(actor.parameters()), lr=3e-4)
    log_alpha = torch.zeros(1, requires_grad=True)
    alpha, a_opt = log_alpha.exp().item(), torch.optim.Adam([log_alpha], lr=1e-3)
    rb, obs, log = ReplayBuffer(5000, 3, 1), reset(), []
    for gs in range(520):
        if gs < 200:
            a = np.random.uniform(-2, 2, 1).astype(np.float32)
        else:
            a = actor.get_action(torch.tensor(obs)[None])[0].detach().numpy()[0]
        nobs, r, trunc = step(float(a[0]))
        rb.add(obs, nobs, a, r, 0.)           # truncation only, never terminal
        obs = reset() if trunc else nobs
        if gs < 200:
            continue
        o, o2, ac, rew, d = rb.sample(64)
        with torch.no_grad():
            na, nlp = actor.get_action(o2)
            tgt = torch.min(qf1_t(o2, na), qf2_t(o2, na)) - alpha * nlp
            y = rew + (1 - d) * .98 * tgt.view(-1)
        q1, q2 = qf1(o, ac).view(-1), qf2(o, ac).view(-1)
        q_loss = F.mse_loss(q1, y) + F.mse_loss(q2, y)
        q_opt.zero_grad(); q_loss.backward(); q_opt.step()
        if gs % 2 == 0:
            for _ in range(2):
                pi, lp = actor.get_action(o)
                a_loss = (alpha * lp - torch.min(qf1(o, pi), qf2(o, pi))).mean()
                actor_opt.zero_grad(); a_loss.backward(); actor_opt.step()
                with torch.no_grad():
                    _, lp = actor.get_action(o)
                al = (-log_alpha.exp() * (lp - 1.)).mean()
                a_opt.zero_grad(); al.backward(); a_opt.step()
                alpha = log_alpha.exp().item()
        for p, tp in zip([*qf1.parameters(), *qf2.parameters()], [*qf1_t.parameters(), *qf2_t.parameters()]):
            tp.data.copy_(.01 * p.data + .99 * tp.data)
        log.append(q_loss.item())
        if gs % 100 == 0:
            print(gs, "q_loss", np.mean(log[-50:]), "alpha", alpha)


WATCH = ()
