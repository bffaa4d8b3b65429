"""REINFORCE with a learned state-value baseline on gymnasium's CartPole.

fault return_not_reset: none
fault baseline_not_detached: none
fault advantage_broadcast: DK002 at here|"- value"
fault greedy_behaviour: none
"""
import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical


class Agent:
    def __init__(self, env, gamma=0.99):
        n_in, n_out = env.observation_space.shape[0], int(env.action_space.n)
        self.body = nn.Sequential(nn.Linear(n_in, 32), nn.Tanh())
        self.pi, self.v = nn.Linear(32, n_out), nn.Linear(32, 1)
        nn.init.zeros_(self.pi.weight)
        self.opt = torch.optim.Adam([
            {"params": [*self.body.parameters(), *self.pi.parameters()], "lr": 5e-3},
            {"params": self.v.parameters(), "lr": 2e-2},
        ])
        self.env, self.gamma = env, gamma

    def act(self, obs, greedy=False):
        logits = self.pi(self.body(torch.as_tensor(obs, dtype=torch.float32)))
        return int(logits.argmax()) if greedy else int(Categorical(logits=logits).sample())

    @torch.no_grad()
    def episode(self, seed=None):
        obs, _ = self.env.reset(seed=seed)
        states, actions, rewards, done = [], [], [], False
        while not done:
            a = self.act(obs)  #! greedy_behaviour: a = self.act(obs, greedy=True)
            states.append(obs); actions.append(a)
            obs, r, terminated, truncated, _ = self.env.step(a)
            rewards.append(r)
            done = terminated or truncated
        return np.stack(states), actions, rewards

    def returns(self, episodes):
        out, g = [], 0.0
        for _, _, rewards in episodes:
            back, g = [], 0.0  #! return_not_reset: back = []
            for r in reversed(rewards):
                g = r + self.gamma * g
                back.append(g)
            out.extend(back[::-1])
        return torch.tensor(out, dtype=torch.float32)

    def update(self, episodes):
        states = torch.from_numpy(np.concatenate([e[0] for e in episodes]))
        actions = torch.tensor([a for e in episodes for a in e[1]])
        ret = self.returns(episodes) / 20.0
        feat = self.body(states)
        value = self.v(feat.detach()).squeeze(-1)  #! advantage_broadcast: value = self.v(feat.detach())
        adv = ret - value.detach()  #! baseline_not_detached: adv = ret - value
        policy_loss = -(Categorical(logits=self.pi(feat)).log_prob(actions) * adv).sum() / len(episodes)
        value_loss = (ret - value).pow(2).mean()
        self.opt.zero_grad()
        (policy_loss + value_loss).backward()
        nn.utils.clip_grad_norm_([*self.body.parameters(), *self.pi.parameters()], 5.0)
        self.opt.step()
        return value_loss.item()


def train():
    torch.manual_seed(21)
    np.random.seed(21)
    env = gym.wrappers.TimeLimit(gym.make("CartPole-v1").unwrapped, 120)
    agent = Agent(env)
    lengths, value_losses = [], []
    for it in range(30):
        episodes = [agent.episode(seed=1000 * it + k) for k in range(6)]
        value_losses.append(agent.update(episodes))
        lengths.append(sum(len(e[1]) for e in episodes) / len(episodes))
    env.close()
    train.score = lengths[0], sum(lengths[-5:]) / 5
    return [-x for x in lengths]


WATCH = ()
