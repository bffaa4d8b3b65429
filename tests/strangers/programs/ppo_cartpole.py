# in the manner of single-file RL implementations
"""PPO on vectorised CartPole with GAE, orthogonal init, running observation statistics and learning-rate annealing.

fault gae_done: none
fault clip_early: DK504
fault anneal_up: none
fault flipped_ratio: none
"""
import random
import time
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical


@dataclass
class Args:
    env_id: str = "CartPole-v1"
    seed: int = 1
    num_envs: int = 8
    num_steps: int = 64
    updates: int = 16
    epochs: int = 4
    minibatches: int = 3
    lr: float = 3e-3
    gamma: float = 0.98
    lam: float = 0.9
    clip: float = 0.2
    ent_coef: float = 0.005
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5


def layer_init(layer, std=2 ** 0.5, bias=0.0):
    nn.init.orthogonal_(layer.weight, std)
    nn.init.constant_(layer.bias, bias)
    return layer


class RunningNorm(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("var", torch.ones(shape))
        self.register_buffer("count", torch.tensor(1e-2))

    @torch.no_grad()
    def update(self, x):
        n, m, v = len(x), x.mean(0), x.var(0, unbiased=False)
        delta, tot = m - self.mean, self.count + n
        self.var.copy_((self.var * self.count + v * n + delta ** 2 * self.count * n / tot) / tot)
        self.mean.add_(delta * n / tot)
        self.count.fill_(tot)

    def forward(self, x):
        return ((x - self.mean) / (self.var + 1e-8).sqrt()).clamp(-10, 10)


class Agent(nn.Module):
    def __init__(self, obs_dim, n_act):
        super().__init__()
        self.critic = nn.Sequential(layer_init(nn.Linear(obs_dim, 64)), nn.Tanh(), layer_init(nn.Linear(64, 64)), nn.Tanh(), layer_init(nn.Linear(64, 1), std=1.0))
        self.actor = nn.Sequential(layer_init(nn.Linear(obs_dim, 64)), nn.Tanh(), layer_init(nn.Linear(64, 64)), nn.Tanh(), layer_init(nn.Linear(64, n_act), std=0.01))

    def get_value(self, x):
        return self.critic(x).squeeze(-1)

    def act(self, x, action=None):
        dist = Categorical(logits=self.actor(x))
        action = dist.sample() if action is None else action
        return action, dist.log_prob(action), dist.entropy(), self.get_value(x)


def train():
    args = Args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    envs = gym.vector.SyncVectorEnv([lambda: gym.make(args.env_id)] * args.num_envs, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
    obs_dim, n_act = envs.single_observation_space.shape[0], int(envs.single_action_space.n)
    agent, norm = Agent(obs_dim, n_act), RunningNorm(obs_dim)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.lr, eps=1e-5)

    S, N = args.num_steps, args.num_envs
    obs, actions, logprobs = torch.zeros(S, N, obs_dim), torch.zeros(S, N, dtype=torch.long), torch.zeros(S, N)
    rewards, dones, values = torch.zeros(S, N), torch.zeros(S, N), torch.zeros(S, N)
    next_obs = torch.as_tensor(envs.reset(seed=args.seed)[0])
    ep_len, finished, start = np.zeros(N), [], time.time()
    for update in range(args.updates):
        frac = 1.0 - update / args.updates  #! anneal_up: frac = (update + 0.1) / args.updates
        optimizer.param_groups[0]["lr"] = frac * args.lr
        if update > 0:  # only between rollouts, so that old and new log-probs see the same inputs
            norm.update(obs.flatten(0, 1))
        for t in range(S):
            obs[t] = next_obs
            with torch.no_grad():
                actions[t], logprobs[t], _, values[t] = agent.act(norm(next_obs))
            o, r, term, trunc, info = envs.step(actions[t].numpy())
            next_obs = torch.as_tensor(o)
            rewards[t], dones[t] = torch.as_tensor(r, dtype=torch.float32), torch.as_tensor(term | trunc).float()
            for i in np.flatnonzero(trunc & ~term):  # a time limit is no failure: bootstrap from the real last observation
                with torch.no_grad():
                    rewards[t, i] += args.gamma * agent.get_value(norm(torch.as_tensor(info["final_obs"][i])[None]))[0]
            ep_len += 1
            finished += ep_len[term | trunc].tolist()
            ep_len[term | trunc] = 0

        with torch.no_grad():
            advantages, last = torch.zeros(S, N), torch.zeros(N)
            next_value = agent.get_value(norm(next_obs))
            for t in reversed(range(S)):
                alive = 1.0 - dones[t]
                delta = rewards[t] + args.gamma * next_value * alive - values[t]
                last = delta + args.gamma * args.lam * alive * last  #! gae_done: last = delta + args.gamma * args.lam * last
                advantages[t], next_value = last, values[t]
            returns = advantages + values

        b_obs, b_act, b_logp = norm(obs.flatten(0, 1)), actions.flatten(), logprobs.flatten()
        b_adv, b_ret = advantages.flatten(), returns.flatten()
        stats = []
        for _ in range(args.epochs):
            for mb in torch.randperm(S * N).chunk(args.minibatches):
                _, logp, entropy, value = agent.act(b_obs[mb], b_act[mb])
                logratio = logp - b_logp[mb]  #! flipped_ratio: logratio = b_logp[mb] - logp
                ratio = logratio.exp()
                adv = (b_adv[mb] - b_adv[mb].mean()) / (b_adv[mb].std() + 1e-8)
                pg_loss = torch.max(-adv * ratio, -adv * ratio.clamp(1 - args.clip, 1 + args.clip)).mean()
                v_loss = 0.5 * (value - b_ret[mb]).pow(2).mean()
                loss = pg_loss + args.vf_coef * v_loss - args.ent_coef * entropy.mean()
                optimizer.zero_grad()  #! clip_early: optimizer.zero_grad(); nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)  #! clip_early: pass
                optimizer.step()
                stats.append((loss.item(), v_loss.item(), ((ratio - 1).abs() > args.clip).float().mean().item()))
        m = np.mean(stats, 0)
        if update % 3 == 0 or update == args.updates - 1:
            print(f"update {update:2d} loss {m[0]:.3f} v {m[1]:.3f} clipfrac {m[2]:.2f} episode length {np.mean(finished[-20:]):.1f} sps {int((update + 1) * S * N / (time.time() - start))}")
    envs.close()


WATCH = ()
