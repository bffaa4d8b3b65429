"""Goal-conditioned DQN on bit flipping with hindsight relabelling of whole stored episodes.

fault reward_stale: none
fault future_includes_past: none
fault target_never_synced: none
fault gather_next_wrong: none
"""
import copy
import random
from collections import deque

import torch
import torch.nn.functional as F

BITS, GAMMA = 5, 0.9
rng = random.Random()


def q_net():
    return torch.nn.Sequential(torch.nn.Linear(2 * BITS, 96), torch.nn.ReLU(), torch.nn.Linear(96, BITS))


def flip(state, bit):
    out = list(state)
    out[bit] ^= 1
    return tuple(out)


def run_episode(net, eps):
    state = tuple(rng.getrandbits(1) for _ in range(BITS))
    goal = tuple(rng.getrandbits(1) for _ in range(BITS))
    steps = []
    for _ in range(BITS):
        if state == goal:
            break
        if rng.random() < eps:
            a = rng.randrange(BITS)
        else:
            with torch.no_grad():
                a = int(net(torch.tensor([state + goal], dtype=torch.float32)).argmax())
        nxt = flip(state, a)
        steps.append((state, a, nxt))
        state = nxt
    return steps, goal, state == goal


def sample_transitions(memory, n, p_her=0.8):
    rows = []
    while len(rows) < n:
        steps, goal = rng.choice(memory)
        t = rng.randrange(len(steps))
        s, a, s2 = steps[t]
        aim = goal
        if rng.random() < p_her:
            aim = steps[rng.randrange(t, len(steps))][2]  #! future_includes_past: aim = steps[rng.randrange(0, t + 1)][0]
        reached = float(s2 == aim)  #! reward_stale: reached = float(s2 == goal)
        rows.append((s + aim, a, reached - 1.0, s2 + aim, reached))
    x, a, r, x2, d = zip(*rows)
    f = lambda v: torch.tensor(v, dtype=torch.float32)
    return f(x), torch.tensor(a), f(r), f(x2), f(d)


def td_loss(net, target, batch):
    x, a, r, x2, d = batch
    q = net(x).gather(1, a[:, None]).squeeze(1)
    with torch.no_grad():
        best = net(x2).argmax(1, keepdim=True)
        boot = target(x2).gather(1, best).squeeze(1)  #! gather_next_wrong: boot = target(x2).gather(1, a[:, None]).squeeze(1)
        y = (r + GAMMA * (1 - d) * boot).clamp(-1 / (1 - GAMMA), 0)
    return F.smooth_l1_loss(q, y)


def train():
    torch.manual_seed(51)
    rng.seed(52)
    net = q_net()
    target = copy.deepcopy(net).requires_grad_(False)
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    memory, wins, losses = deque(maxlen=400), [], []
    for cycle in range(35):
        eps = max(0.1, 0.8 - 0.04 * cycle)
        for _ in range(12):
            steps, goal, _ = run_episode(net, eps)
            if steps:
                memory.append((steps, goal))
        for _ in range(12):
            loss = td_loss(net, target, sample_transitions(memory, 96))
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        if cycle % 2 == 1:
            target.load_state_dict(net.state_dict())  #! target_never_synced: target.load_state_dict(target.state_dict())
        wins.append(sum(run_episode(net, 0.0)[2] for _ in range(20)) / 20)
    train.score = wins[0], sum(wins[-4:]) / 4
    return [-w for w in wins]


WATCH = ()
