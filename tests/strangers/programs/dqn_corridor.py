"""DQN in a corridor whose environment updates one array in place; the buffer holds copies.

fault buffer_alias: none
"""
import random
from collections import deque

import numpy as np
import torch
import torch.nn as nn

random.seed(0); np.random.seed(0); torch.manual_seed(0)
N = 8


class Corridor:
    """Start in the middle, reach the right end within 20 steps."""

    def reset(self):
        self.state = np.zeros(N, dtype=np.float32)
        self.pos, self.t = 2, 0
        self.state[self.pos] = 1
        return self.state

    def step(self, action):
        self.state[self.pos] = 0
        self.pos = max(0, min(N - 1, self.pos + (1 if action == 1 else -1)))
        self.state[self.pos] = 1
        self.t += 1
        win = self.pos == N - 1
        return self.state.copy(), 1.0 if win else -0.02, win, self.t >= 20  #! buffer_alias: return self.state, 1.0 if win else -0.02, win, self.t >= 20


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(N, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, x):
        return self.fc(x)


def train():
    q, target = QNet(), QNet()
    target.load_state_dict(q.state_dict())
    opt = torch.optim.Adam(q.parameters(), lr=2e-3)
    buffer, env, steps, wins = deque(maxlen=2000), Corridor(), 0, []
    for episode in range(60):
        s, done, stop = env.reset().copy(), False, False  #! buffer_alias: s, done, stop = env.reset(), False, False
        eps = max(0.1, 1 - episode / 40)
        while not (done or stop):
            with torch.no_grad():
                a = random.randrange(2) if random.random() < eps else int(q(torch.from_numpy(s)[None]).argmax())
            s2, r, done, stop = env.step(a)
            buffer.append((s, a, r, s2, float(done)))
            s = s2
            steps += 1
            if len(buffer) >= 64:
                bs, ba, br, bs2, bd = zip(*random.sample(buffer, 32))
                bs, bs2 = torch.from_numpy(np.stack(bs)), torch.from_numpy(np.stack(bs2))
                ba, br, bd = torch.tensor(ba), torch.tensor(br), torch.tensor(bd)
                with torch.no_grad():
                    y = br + 0.95 * (1 - bd) * target(bs2).max(1).values
                loss = nn.functional.smooth_l1_loss(q(bs).gather(1, ba[:, None]).squeeze(1), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
            if steps % 50 == 0:
                target.load_state_dict(q.state_dict())
        wins.append(done)
        if episode % 15 == 14:
            print(f"episode {episode} wins of the last 15: {sum(wins[-15:])} loss {loss.item():.4f}")
    with torch.no_grad():
        print("greedy actions per cell (all should be 1):", q(torch.eye(N)).argmax(1).tolist())


WATCH = ()
