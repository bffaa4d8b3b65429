"""ppo gauss

fault joints_not_summed: none
"""
# PPO (continuous actions) on a two-joint arm that has to hold a pose. In the manner of single-file implementations.
import time

import numpy as np
import torch
import torch.nn as nn
from torch.distributions.normal import Normal

seed, num_envs, num_steps, iterations = 1, 8, 64, 12
gamma, lam, epochs, minibatches, clip, vf, ent, lr = 0.95, 0.95, 4, 4, 0.2, 0.5, 0.001, 7e-4
np.random.seed(seed)
torch.manual_seed(seed)


class ArmEnv:
    """q, dq, goal for each of the joints; reward is minus the distance."""

    def __init__(self, n):
        self.n, self.horizon = n, 40
        self.t = np.random.randint(0, 40, n)
        self.q, self.dq, self.goal = np.zeros((n, 2)), np.zeros((n, 2)), np.random.uniform(-1, 1, (n, 2))

    def obs(self):
        return np.concatenate([self.q, self.dq, self.goal], 1).astype(np.float32)

    def step(self, a):
        a = np.clip(a, -2, 2)
        self.dq = 0.7 * self.dq + 0.15 * a
        self.q = self.q + 0.3 * self.dq
        self.t += 1
        r = -np.abs(self.q - self.goal).sum(1) - 0.01 * (a ** 2).sum(1)
        done = self.t >= self.horizon
        for i in np.flatnonzero(done):
            self.q[i], self.dq[i], self.goal[i], self.t[i] = 0, 0, np.random.uniform(-1, 1, 2), 0
        return self.obs(), r.astype(np.float32), done.astype(np.float32)


def layer_init(layer, std=np.sqrt(2), bias=0.0):
    nn.init.orthogonal_(layer.weight, std)
    nn.init.constant_(layer.bias, bias)
    return layer


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(layer_init(nn.Linear(6, 64)), nn.Tanh(), layer_init(nn.Linear(64, 64)), nn.Tanh(),
                                    layer_init(nn.Linear(64, 1), std=1.0))
        self.actor_mean = nn.Sequential(layer_init(nn.Linear(6, 64)), nn.Tanh(), layer_init(nn.Linear(64, 64)), nn.Tanh(),
                                        layer_init(nn.Linear(64, 2), std=0.01))
        self.actor_logstd = nn.Parameter(torch.zeros(1, 2))

    def get_value(self, x):
        return self.critic(x)

    def get_action_and_value(self, x, action=None):
        mean = self.actor_mean(x)
        probs = Normal(mean, self.actor_logstd.expand_as(mean).exp())
        if action is None:
            action = probs.sample()
        logprob = probs.log_prob(action).sum(-1, keepdim=True)  #! joints_not_summed: logprob = probs.log_prob(action)
        return action, logprob, probs.entropy().sum(-1, keepdim=True), self.critic(x)


env, agent = ArmEnv(num_envs), Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=lr, eps=1e-5)
nxt, nxt_done = torch.from_numpy(env.obs()), torch.zeros(num_envs, 1)
start = time.time()
for it in range(iterations):
    optimizer.param_groups[0]["lr"] = (1.0 - it / iterations) * lr
    O, A, LP, R, D, V = [], [], [], [], [], []
    for _ in range(num_steps):
        with torch.no_grad():
            a, lp, _, v = agent.get_action_and_value(nxt)
        O.append(nxt), A.append(a), LP.append(lp), D.append(nxt_done), V.append(v)
        o, r, d = env.step(a.numpy())
        nxt, nxt_done = torch.from_numpy(o), torch.from_numpy(d)[:, None]
        R.append(torch.from_numpy(r)[:, None])
    with torch.no_grad():
        adv, last, nv, nd = [], 0.0, agent.get_value(nxt), nxt_done
        for t in reversed(range(num_steps)):
            delta = R[t] + gamma * nv * (1 - nd) - V[t]
            last = delta + gamma * lam * (1 - nd) * last
            adv.insert(0, last)
            nv, nd = V[t], D[t]
    O, A, LP, V, ADV = (torch.cat(x) for x in (O, A, LP, V, adv))
    RET = ADV + V
    for _ in range(epochs):
        for mb in torch.randperm(len(O)).chunk(minibatches):
            _, newlp, entropy, newv = agent.get_action_and_value(O[mb], A[mb])
            ratio = (newlp - LP[mb]).exp()
            mb_adv = (ADV[mb] - ADV[mb].mean()) / (ADV[mb].std() + 1e-8)
            pg = torch.max(-mb_adv * ratio, -mb_adv * ratio.clamp(1 - clip, 1 + clip)).mean()
            v_loss = 0.5 * ((newv - RET[mb]) ** 2).mean()
            loss = pg - ent * entropy.mean() + vf * v_loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    print(it, f"reward {torch.stack(R).mean().item():.3f} v_loss {v_loss.item():.3f} {time.time() - start:.1f}s")


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
