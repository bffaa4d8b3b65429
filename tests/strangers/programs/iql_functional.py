"""IQL on an offline set of a point-mass task, in a functional style: expectile value, twin target critics and advantage-weighted cloning.

fault expectile_sign: none
fault no_done: none
fault target_copied_back: none
fault rolled_next: none
"""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

GAMMA, TAU, BETA, POLYAK, DT = 0.97, 0.8, 10.0, 0.02, 0.25
ITERS, BATCH, T = 180, 256, 25


def mlp(*sizes, norm=False):
    layers = []
    for i, o in zip(sizes[:-2], sizes[1:-1]):
        layers += [nn.Linear(i, o)] + ([nn.LayerNorm(o)] if norm else []) + [nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


def env_reset(n, gen):
    return torch.rand(n, 4, generator=gen) * 2 - 1  # position, goal


def env_step(s, a):
    pos = s[:, :2] + DT * a.clamp(-1, 1)
    nxt = torch.cat([pos, s[:, 2:]], -1)
    dist = (pos - s[:, 2:]).norm(dim=-1)
    done = dist < 0.15
    return nxt, done.float() * 1.0 - 0.1 * dist, done


def collect(n, gen):
    """Behaviour: half-hearted moves to the goal with much noise, episodes end at the goal or after T steps (a time-out is no terminal)."""
    s, alive, rows = env_reset(n, gen), torch.ones(n, dtype=torch.bool), []
    for _ in range(T):
        d = s[:, 2:] - s[:, :2]
        a = (0.6 * d + 0.6 * torch.randn(n, 2, generator=gen)).clamp(-1, 1)
        nxt, r, done = env_step(s, a)
        rows.append(tuple(x[alive] for x in (s, a, r, nxt, done.float())))
        alive = alive & ~done
        s = nxt
    names = ("s", "a", "r", "s2", "done")
    return {k: torch.cat(v) for k, v in zip(names, zip(*rows))}


def make_agent():
    nets = nn.ModuleDict({
        "q1": mlp(6, 64, 64, 1, norm=True), "q2": mlp(6, 64, 64, 1, norm=True),
        "v": mlp(4, 64, 64, 1, norm=True), "pi": mlp(4, 64, 64, 2),
    })
    target = copy.deepcopy(nn.ModuleDict({k: nets[k] for k in ("q1", "q2")})).requires_grad_(False)
    return nets, target


def q_both(nets, s, a):
    x = torch.cat([s, a], -1)
    return nets["q1"](x)[:, 0], nets["q2"](x)[:, 0]


def v_loss(nets, target, b):
    with torch.no_grad():
        q = torch.minimum(*q_both(target, b["s"], b["a"]))
    diff = q - nets["v"](b["s"])[:, 0]
    weight = torch.where(diff > 0, TAU, 1 - TAU)  #! expectile_sign: weight = torch.where(diff < 0, TAU, 1 - TAU)
    return (weight * diff.pow(2)).mean(), diff.detach()


def q_loss(nets, b):
    with torch.no_grad():
        y = b["r"] + GAMMA * (1 - b["done"]) * nets["v"](b["s2"])[:, 0]  #! no_done: y = b["r"] + GAMMA * nets["v"](b["s2"])[:, 0]
    return sum(F.mse_loss(q, y) for q in q_both(nets, b["s"], b["a"]))


def pi_loss(nets, b, adv):
    w = torch.exp(BETA * adv).clamp(max=20.0)
    mean = torch.tanh(nets["pi"](b["s"]))
    return (w * (mean - b["a"]).pow(2).sum(-1)).mean()


@torch.no_grad()
def polyak(src, dst, rate=POLYAK):
    for k in ("q1", "q2"):
        for p, tp in zip(src[k].parameters(), dst[k].parameters()):
            tp.lerp_(p, rate)  #! target_copied_back: p.lerp_(tp, 1 - rate)


@torch.no_grad()
def evaluate(act, seed, n=256):
    s, alive, ret = env_reset(n, torch.Generator().manual_seed(seed)), torch.ones(n), torch.zeros(n)
    for _ in range(T):
        s, r, done = env_step(s, act(s))
        ret += r * alive
        alive = alive * (~done).float()
    return ret.mean().item(), 1 - alive.mean().item()


def train():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(10)
    data = collect(800, gen)
    mu, sd = data["s"].mean(0), data["s"].std(0)
    data["s"], data["s2"] = (data["s"] - mu) / sd, (data["s2"] - mu) / sd  #! rolled_next: data["s"], data["s2"] = (data["s"] - mu) / sd, ((data["s"] - mu) / sd).roll(-1, 0)
    nets, target = make_agent()
    opts = {
        "v": torch.optim.Adam(nets["v"].parameters(), lr=2e-3),
        "q": torch.optim.Adam([*nets["q1"].parameters(), *nets["q2"].parameters()], lr=2e-3),
        "pi": torch.optim.Adam(nets["pi"].parameters(), lr=2e-3),
    }
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(opts["pi"], ITERS)
    policy = lambda s: torch.tanh(nets["pi"]((s - mu) / sd))
    print(f"{len(data['r'])} transitions; return before training %.2f, success %.2f" % evaluate(policy, 99))
    avg = {}
    for it in range(ITERS):
        idx = torch.randint(0, len(data["r"]), (BATCH,), generator=gen)
        b = {k: v[idx] for k, v in data.items()}
        losses = {}
        losses["v"], adv = v_loss(nets, target, b)
        losses["pi"] = pi_loss(nets, b, adv)
        losses["q"] = q_loss(nets, b)
        for k, loss in losses.items():
            opts[k].zero_grad(set_to_none=True)
            loss.backward()
            opts[k].step()
            avg[k] = loss.item() if k not in avg else 0.9 * avg[k] + 0.1 * loss.item()
        cosine.step()
        polyak(nets, target)
        if it % 30 == 0 or it == ITERS - 1:
            print(f"it {it:3d} " + " ".join(f"{k} {v:.3f}" for k, v in avg.items()))
    print("return %.2f, success %.2f" % evaluate(policy, 99))


WATCH = ()
