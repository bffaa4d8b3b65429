"""Quantile-regression DQN for a lane-keeping task with three actions; soft updates of the target network.

fault average_the_wrong_way_round: DK513 at here
"""
import copy
import random
from collections import deque

import numpy as np
import torch
import torch.nn as nn

N, ACTIONS = 16, 3


class Lane:
    """offset and heading of a car; steer left, straight, right; the episode ends off the road."""

    def reset(self):
        self.y, self.psi, self.t = random.uniform(-.5, .5), random.uniform(-.2, .2), 0
        return self.observe()

    def observe(self):
        return np.array([self.y, self.psi, self.y * self.psi], np.float32)

    def step(self, a):
        self.psi += 0.08 * (a - 1) + random.gauss(0, 0.02)
        self.y += 0.3 * self.psi
        self.t += 1
        off = abs(self.y) > 1
        return self.observe(), (-1.0 if off else 1 - abs(self.y)) * 0.2, off, self.t >= 60


class QR(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, ACTIONS * N))

    def forward(self, x):
        return self.net(x).view(-1, ACTIONS, N)


def quantile_huber(pred, target, taus):
    u = target.unsqueeze(1) - pred.unsqueeze(2)  # (B, N of pred, N of target)
    huber = torch.where(u.abs() < 1, 0.5 * u ** 2, u.abs() - 0.5)
    return ((taus.view(1, -1, 1) - (u.detach() < 0).float()).abs() * huber).sum(1).mean()


def soft_update(target, online, tau):
    with torch.no_grad():
        for t, o in zip(target.parameters(), online.parameters()):
            t.mul_(1 - tau).add_(o, alpha=tau)  #! average_the_wrong_way_round: t.mul_(tau).add_(o, alpha=1 - tau)


def main():
    random.seed(2), np.random.seed(2), torch.manual_seed(2)
    env, online = Lane(), QR()
    target = copy.deepcopy(online).requires_grad_(False)
    opt = torch.optim.Adam(online.parameters(), lr=1e-3)
    taus = (torch.arange(N) + 0.5) / N
    memory, returns, total, updates = deque(maxlen=5000), deque([0.0], maxlen=10), 0.0, 0
    s = env.reset()
    for step in range(1500):
        eps = max(0.05, 1 - step / 700)
        if random.random() < eps:
            a = random.randrange(ACTIONS)
        else:
            with torch.no_grad():
                a = online(torch.from_numpy(s)[None]).mean(-1).argmax().item()
        s2, r, off, timeout = env.step(a)
        memory.append((s, a, r, s2, float(off)))
        total += r
        s = s2
        if off or timeout:
            returns.append(total)
            s, total = env.reset(), 0.0
        if len(memory) < 200 or step % 4:
            continue
        b = random.sample(memory, 64)
        S, A, R, S2, D = (torch.as_tensor(np.array(x)) for x in zip(*b))
        with torch.no_grad():
            nxt = target(S2)
            best = nxt.mean(-1).argmax(-1)
            goal = R.float()[:, None] + 0.97 * (1 - D.float())[:, None] * nxt[torch.arange(64), best]
        pred = online(S)[torch.arange(64), A]
        loss = quantile_huber(pred, goal, taus)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(online.parameters(), 10)
        opt.step()
        soft_update(target, online, 0.01)
        updates += 1
        if updates % 60 == 0:
            print(updates, f"loss {loss.item():.4f} return {np.mean(returns):.2f}")


if __name__ == "__main__":
    main()


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
