"""Behaviour transformer for a pick-and-place arm: windows of 8 observations predict the next 6 waypoints.

fault windows_across_episodes: none
"""
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

OBS, CHUNK, DIM = 8, 6, 7


def demonstration(rng):
    """Move from home to an object, grasp it, carry it to a bin; state = xyz, gripper, object xyz."""
    pos, obj, bin_ = np.array([0., 0., .5]), np.append(rng.uniform(-.4, .4, 2), 0.), np.append(rng.uniform(-.4, .4, 2), .1)
    grip, held, states, actions = 1.0, False, [], []
    for t in range(int(rng.integers(36, 60))):
        goal = bin_ if held else obj
        a = np.clip(goal - pos, -.06, .06)
        if not held and np.linalg.norm(goal - pos) < .03:
            held, grip = True, 0.0
        states.append(np.concatenate([pos, [grip], obj]))
        actions.append(np.append(pos + a, grip))
        pos = pos + a + rng.normal(0, .002, 3)
        if held:
            obj = pos.copy()
    return np.array(states, np.float32), np.array(actions, np.float32)


class Demonstrations(Dataset):
    """All episodes in one flat array, as in a zarr replay buffer; `ends` marks where each one stops."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        eps = [demonstration(rng) for _ in range(n)]
        self.states = np.concatenate([s for s, _ in eps])
        self.actions = np.concatenate([a for _, a in eps])
        self.ends = np.cumsum([len(s) for s, _ in eps])
        self.s_mean, self.s_std = self.states.mean(0), self.states.std(0) + 1e-3
        self.a_mean, self.a_std = self.actions.mean(0), self.actions.std(0) + 1e-3
        self.starts = []
        begin = 0  #! windows_across_episodes: self.starts += range(0, len(self.states) - OBS - CHUNK + 1)
        for end in self.ends:  #! windows_across_episodes: for end in ():
            self.starts += range(begin, end - OBS - CHUNK + 1)  #! windows_across_episodes: pass
            begin = end  #! windows_across_episodes: pass

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        t = self.starts[i]
        s = (self.states[t:t + OBS] - self.s_mean) / self.s_std
        a = (self.actions[t + OBS - 1:t + OBS - 1 + CHUNK] - self.a_mean) / self.a_std
        return torch.from_numpy(s), torch.from_numpy(a)


class WaypointPolicy(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.inp = nn.Linear(DIM, d)
        self.pos = nn.Parameter(0.02 * torch.randn(1, OBS, d))
        layer = nn.TransformerEncoderLayer(d, 4, 96, dropout=0.0, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.query = nn.Parameter(0.02 * torch.randn(1, CHUNK, d))
        self.cross = nn.MultiheadAttention(d, 4, batch_first=True)
        self.out = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.GELU(), nn.Linear(d, 4))

    def forward(self, states):
        h = self.enc(self.inp(states) + self.pos)
        q = self.query.expand(len(states), -1, -1)
        return self.out(q + self.cross(q, h, h, need_weights=False)[0])


torch.manual_seed(17)
data = Demonstrations(40, 17)
loader = DataLoader(data, batch_size=64, shuffle=True, drop_last=True)
policy = WaypointPolicy()
opt = torch.optim.AdamW(policy.parameters(), lr=1e-3, weight_decay=1e-4)
print(len(data), "windows of", len(data.ends), "episodes")
step = 0
while step < 200:
    for states, actions in loader:
        loss = nn.functional.l1_loss(policy(states), actions)
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step % 40 == 0:
            print(step, round(loss.item(), 4))
        if step == 200:
            break


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
