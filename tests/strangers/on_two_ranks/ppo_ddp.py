"""PPO with a DDP actor-critic: each rank steps its own batch of point-mass environments (numpy seeds per rank),
advantages are normalised with statistics over all ranks, several epochs of minibatches per rollout.

fault same_env_seed: DK806
    All ranks seed environments and action sampling alike and collect identical rollouts.
fault bootstrap_past_done: none
    The return estimate bootstraps over episode ends.
fault ratio_always_one: none
    The old log-probabilities are recomputed from the current policy, so the ratio is always one and never clipped.
"""
import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributions import Categorical
from torch.nn.parallel import DistributedDataParallel as DDP

N_ENVS, T_ROLL, N_ITERS, N_EPOCHS, N_MINI = 16, 32, 8, 3, 4
GAMMA, LAM, CLIP, VF, ENT = 0.95, 0.9, 0.2, 0.5, 0.01


class LineWalk:
    """Vectorised: push a damped mass on a line onto a target. Actions: left, stay, right. 20 steps an episode."""

    def __init__(self, n, rng):
        self.n, self.rng = n, rng
        self.pos, self.vel, self.goal = np.zeros(n), np.zeros(n), np.zeros(n)
        self.t = np.zeros(n, dtype=np.int64)
        self._reset(np.ones(n, dtype=bool))

    def _reset(self, m):
        k = int(m.sum())
        self.pos[m] = self.rng.uniform(-1, 1, k)
        self.goal[m] = self.rng.uniform(-1, 1, k)
        self.vel[m] = 0
        self.t[m] = 0

    def obs(self):
        o = np.stack([self.pos, self.vel, self.goal, self.goal - self.pos, self.t / 20], 1)
        return torch.as_tensor(o, dtype=torch.float32)

    def step(self, a):
        self.vel = 0.7 * self.vel + 0.12 * (a - 1) + self.rng.normal(0, 0.01, self.n)
        self.pos = np.clip(self.pos + self.vel, -2, 2)
        self.t += 1
        reward = -np.abs(self.pos - self.goal)
        done = self.t >= 20
        self._reset(done)
        return torch.as_tensor(reward, dtype=torch.float32), torch.as_tensor(done, dtype=torch.float32)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(5, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))
        self.v = nn.Sequential(nn.Linear(5, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        with torch.no_grad():
            self.pi[-1].weight.mul_(0.01)

    def forward(self, obs):
        return self.pi(obs), self.v(obs).squeeze(-1)


@torch.no_grad()
def rollout(net, env, gen):
    buf = {k: [] for k in ("obs", "act", "logp", "val", "rew", "done")}
    for _ in range(T_ROLL):
        o = env.obs()
        logits, v = net(o)
        a = torch.multinomial(logits.softmax(-1), 1, generator=gen).squeeze(-1)
        r, d = env.step(a.numpy())
        for k, x in zip(buf, (o, a, Categorical(logits=logits).log_prob(a), v, r, d)):
            buf[k].append(x)
    last_v = net(env.obs())[1]
    return {k: torch.stack(x) for k, x in buf.items()}, last_v


def gae(rew, val, dones, last_v):
    adv, run = torch.zeros_like(rew), torch.zeros(rew.size(1))
    nxt = last_v
    for t in reversed(range(T_ROLL)):
        live = 1.0 - dones[t]  #! bootstrap_past_done: live = torch.ones_like(dones[t])
        delta = rew[t] + GAMMA * nxt * live - val[t]
        run = delta + GAMMA * LAM * live * run
        adv[t] = run
        nxt = val[t]
    return adv, adv + val


def normalise_over_ranks(adv):
    s = torch.stack([adv.sum(), (adv ** 2).sum(), torch.tensor(float(adv.numel()))])
    dist.all_reduce(s)
    mean = s[0] / s[2]
    std = (s[1] / s[2] - mean ** 2).clamp_min(0).sqrt()
    return (adv - mean) / (std + 1e-8)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(ActorCritic())
    opt = torch.optim.Adam(model.parameters(), lr=3e-3, eps=1e-5)
    seed = 1000 + rank  #! same_env_seed: seed = 1000
    env = LineWalk(N_ENVS, np.random.default_rng(seed))
    gen = torch.Generator().manual_seed(seed)

    for it in range(N_ITERS):
        # acting needs no gradients: the plain module will do
        data, last_v = rollout(model.module, env, gen)
        adv, ret = gae(data["rew"], data["val"], data["done"], last_v)
        adv = normalise_over_ranks(adv)
        flat = {k: x.flatten(0, 1) for k, x in data.items()}
        adv, ret = adv.flatten(), ret.flatten()
        for _ in range(N_EPOCHS):
            for idx in torch.randperm(len(adv), generator=gen).chunk(N_MINI):
                logits, v = model(flat["obs"][idx])
                pd = Categorical(logits=logits)
                logp = pd.log_prob(flat["act"][idx])
                ratio = (logp - flat["logp"][idx]).exp()  #! ratio_always_one: ratio = (logp - logp.detach()).exp()
                surr = torch.min(ratio * adv[idx], ratio.clamp(1 - CLIP, 1 + CLIP) * adv[idx])
                loss = -surr.mean() + VF * (v - ret[idx]).pow(2).mean() - ENT * pd.entropy().mean()
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                opt.step()
        mean_r = data["rew"].mean()
        dist.all_reduce(mean_r)
        if rank == 0:
            print(f"iter {it} mean step reward {mean_r.item() / world:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
