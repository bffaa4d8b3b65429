"""CleanRL-style PPO on a vectorised point-mass environment written with torch."""
import torch, numpy as np
from torch import nn
from torch.distributions import Normal

seed = 1
torch.manual_seed(seed); np.random.seed(seed)


class PointEnv:
    def __init__(self, n):
        self.n = n
        self.reset_all()
    def reset_all(self):
        self.p = np.random.uniform(-1, 1, (self.n, 2)).astype(np.float32); self.g = np.random.uniform(-1, 1, (self.n, 2)).astype(np.float32)
        self.t = np.zeros(self.n, int)
        return self.obs()
    def obs(self):
        return np.concatenate([self.p, self.g], 1)
    def step(self, a):
        self.p = np.clip(self.p + .2 * np.clip(a, -1, 1), -1.5, 1.5).astype(np.float32)
        self.t += 1
        r = -np.linalg.norm(self.p - self.g, axis=1).astype(np.float32)
        done = self.t >= 16
        for i in np.nonzero(done)[0]:
            self.p[i] = np.random.uniform(-1, 1, 2); self.g[i] = np.random.uniform(-1, 1, 2); self.t[i] = 0
        return self.obs(), r, done


def layer_init(layer, std=np.sqrt(2), bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self, o, a):
        super().__init__()
        self.critic = nn.Sequential(layer_init(nn.Linear(o, 64)), nn.Tanh(), layer_init(nn.Linear(64, 64)), nn.Tanh(), layer_init(nn.Linear(64, 1), 1.0))
        self.actor_mean = nn.Sequential(layer_init(nn.Linear(o, 64)), nn.Tanh(), layer_init(nn.Linear(64, 64)), nn.Tanh(), layer_init(nn.Linear(64, a), .01))
        self.actor_logstd = nn.Parameter(torch.zeros(1, a))
    def get_value(self, x):
        return self.critic(x)
    def get_action_and_value(self, x, action=None):
        mean = self.actor_mean(x)
        probs = Normal(mean, self.actor_logstd.expand_as(mean).exp())
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action).sum(1), probs.entropy().sum(1), self.critic(x)


def train():
    N, S, iters, epochs, mb = 16, 32, 14, 4, 4
    envs, agent = PointEnv(N), Agent(4, 2)
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3, eps=1e-5)
    obs, actions = torch.zeros(S, N, 4), torch.zeros(S, N, 2)
    logprobs, rewards, dones, values = (torch.zeros(S, N) for _ in range(4))
    next_obs, next_done = torch.Tensor(envs.reset_all()), torch.zeros(N)
    for it in range(1, iters + 1):
        optimizer.param_groups[0]["lr"] = (1.0 - (it - 1.0) / iters) * 3e-3
        for s in range(S):
            obs[s], dones[s] = next_obs, next_done
            with torch.no_grad():
                action, logprob, _, value = agent.get_action_and_value(next_obs)
                values[s] = value.flatten()
            actions[s], logprobs[s] = action, logprob
            o, r, d = envs.step(action.numpy())
            rewards[s] = torch.tensor(r)
            next_obs, next_done = torch.Tensor(o), torch.Tensor(d)
        with torch.no_grad():
            nv = agent.get_value(next_obs).reshape(1, -1)
            adv, last = torch.zeros_like(rewards), 0
            for t in reversed(range(S)):
                nt = 1.0 - (next_done if t == S - 1 else dones[t + 1])
                nvals = nv if t == S - 1 else values[t + 1]
                delta = rewards[t] + .95 * nvals * nt - values[t]
                adv[t] = last = delta + .95 * .95 * nt * last
            returns = adv + values
        b_obs, b_act = obs.reshape(-1, 4), actions.reshape(-1, 2)
        b_lp, b_adv, b_ret, b_val = logprobs.reshape(-1), adv.reshape(-1), returns.reshape(-1), values.reshape(-1)
        inds = np.arange(N * S)
        for _ in range(epochs):
            np.random.shuffle(inds)
            for st in range(0, N * S, N * S // mb):
                mi = inds[st:st + N * S // mb]
                _, nlp, ent, nval = agent.get_action_and_value(b_obs[mi], b_act[mi])
                ratio = (nlp - b_lp[mi]).exp()
                a = b_adv[mi]
                a = (a - a.mean()) / (a.std() + 1e-8)
                pg = torch.max(-a * ratio, -a * torch.clamp(ratio, .8, 1.2)).mean()
                nval = nval.view(-1)
                vc = b_val[mi] + torch.clamp(nval - b_val[mi], -.2, .2)
                v_loss = .5 * torch.max((nval - b_ret[mi]) ** 2, (vc - b_ret[mi]) ** 2).mean()
                loss = pg - .001 * ent.mean() + v_loss * .5
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), .5)
                optimizer.step()
        if it % 3 == 1:
            print(it, "mean reward", rewards.mean().item(), "v_loss", v_loss.item())


WATCH = ()
