"""DAgger for a small drone flying through wind to a gate: an MLP policy (torch.compile'd) imitates an LQR-like expert on the states it visits itself.

fault overwrite: none
fault expert_late: DK403
fault stays_eval: DK505 at ".eval()"
fault keeps_graph: DK601
"""
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED, ROUNDS, EPOCHS, HORIZON, N_ENVS, DT = 5, 5, 4, 40, 12, 0.1
OBS_DIM, ACT_DIM, A_MAX = 6, 2, 6.0


class DroneSim:
    """Vectorised double integrator: state = (x, y, vx, vy) in m and m/s, the gate's position per env, constant hidden wind."""

    def __init__(self, n, seed):
        self.n, self.g = n, torch.Generator().manual_seed(seed)

    def reset(self):
        self.pos = torch.rand(self.n, 2, generator=self.g) * 8 - 4
        self.vel = torch.randn(self.n, 2, generator=self.g) * 0.5
        self.gate = torch.rand(self.n, 2, generator=self.g) * 8 - 4
        self.wind = torch.randn(self.n, 2, generator=self.g) * 0.2
        return self.obs()

    def obs(self):
        return torch.cat([self.pos, self.vel, self.gate], -1)

    def step(self, acc):
        acc = acc.clamp(-A_MAX, A_MAX)
        self.vel = self.vel + DT * (acc + self.wind - 0.2 * self.vel * self.vel.norm(dim=-1, keepdim=True))
        self.pos = self.pos + DT * self.vel
        return self.obs()


def expert(obs):
    pos, vel, gate = obs.split(2, -1)
    return (2.5 * (gate - pos) - 2.6 * vel).clamp(-A_MAX, A_MAX)


class Policy(nn.Module):
    def __init__(self, hidden=128, p=0.05):
        super().__init__()
        self.register_buffer("mean", torch.zeros(OBS_DIM))
        self.register_buffer("std", torch.ones(OBS_DIM))
        self.trunk = nn.Sequential(
            nn.Linear(OBS_DIM, hidden), nn.LayerNorm(hidden), nn.SiLU(), nn.Dropout(p),
            nn.Linear(hidden, hidden), nn.LayerNorm(hidden), nn.SiLU(), nn.Dropout(p),
        )
        self.head = nn.Linear(hidden, ACT_DIM)
        nn.init.zeros_(self.head.bias)

    def set_stats(self, obs):
        self.mean.copy_(obs.mean(0))
        self.std.copy_(obs.std(0).clamp_min(1e-3))

    def forward(self, obs):
        return A_MAX * torch.tanh(self.head(self.trunk((obs - self.mean) / self.std)))


@torch.no_grad()
def rollout(policy, sim, beta):
    """Mixture roll-out: each env follows the expert with probability beta; every visited state is labelled by the expert."""
    policy.eval()
    obs, seen, labels = sim.reset(), [], []
    for _ in range(HORIZON):
        use_expert = torch.rand(sim.n, 1) < beta
        act = torch.where(use_expert, expert(obs), policy(obs))
        nxt = sim.step(act)
        seen.append(obs)
        labels.append(expert(obs))  #! expert_late: labels.append(expert(nxt))
        obs = nxt
    policy.train()  #! stays_eval: pass
    return torch.cat(seen), torch.cat(labels)


@torch.no_grad()
def evaluate(policy, seed=1234, n=64):
    was_training = policy.training
    policy.eval()
    sim = DroneSim(n, seed)
    obs = sim.reset()
    for _ in range(60):
        obs = sim.step(policy(obs))
    policy.train(was_training)
    return (sim.pos - sim.gate).norm(dim=-1).median().item()


def fit(policy, opt, obs, act, log):
    loader = DataLoader(TensorDataset(obs, act), batch_size=128, shuffle=True, drop_last=True)
    steps, budget = 0, EPOCHS * 9
    while steps < budget:  # a fixed number of steps per round, however large the set has grown
        for o, a in loader:
            loss = nn.functional.smooth_l1_loss(policy(o), a)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            opt.step()
            log.append(loss.detach())  #! keeps_graph: log.append(loss)
            steps += 1
            if steps == budget:
                break


def train():
    torch.manual_seed(SEED)
    net = Policy()
    policy = torch.compile(net, backend="eager")
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-4)
    sim, log = DroneSim(N_ENVS, SEED), []
    all_obs, all_act = rollout(policy, sim, beta=1.0)
    net.set_stats(all_obs)  # fixed from the expert's own data: later rounds must not move the inputs under the trained weights
    print(f"before: median distance to the gate {evaluate(policy):.2f} m")
    for r in range(ROUNDS):
        for group in opt.param_groups:
            group["lr"] = 2e-3 * 0.5 * (1 + math.cos(math.pi * r / ROUNDS))
        fit(policy, opt, all_obs, all_act, log)
        recent = torch.stack([x.detach() for x in log[-10:]]).mean().item()
        print(f"round {r} samples {len(all_obs)} first loss {log[0].item():.3f} recent loss {recent:.3f} median distance {evaluate(policy):.2f} m")
        if r < ROUNDS - 1:
            new_obs, new_act = rollout(policy, sim, beta=0.5 ** (r + 1))
            all_obs, all_act = torch.cat([all_obs, new_obs]), torch.cat([all_act, new_act])  #! overwrite: all_obs, all_act = new_obs, new_act


WATCH = ()
