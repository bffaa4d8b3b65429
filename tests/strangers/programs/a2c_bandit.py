"""Actor-critic on a contextual bandit whose reward has a part that no action changes.

fault advantage_not_detached: none
"""
import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.manual_seed(0)


class A2C(nn.Module):
    def __init__(self, obs_dim=6, n_act=4):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(obs_dim, 64), nn.ReLU(), nn.Linear(64, n_act))
        self.critic = nn.Sequential(nn.Linear(obs_dim, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, obs):
        return Categorical(logits=self.actor(obs)), self.critic(obs).squeeze(-1)


proj = torch.randn(6, 4)


def contextual_env(batch=64):
    obs = torch.randn(batch, 6)
    best = (obs @ proj).argmax(1)

    def reward(action):
        return (action == best).float() * 2 + 3 * obs[:, 0].abs()
    return obs, reward


def train():
    agent = A2C()
    optimizer = torch.optim.Adam(agent.parameters(), lr=5e-3)
    history = []
    for it in range(400):
        obs, reward = contextual_env()
        dist, value = agent(obs)
        action = dist.sample()
        returns = reward(action)
        advantage = returns - value
        policy_loss = -(dist.log_prob(action) * advantage.detach()).mean()  #! advantage_not_detached: policy_loss = -(dist.log_prob(action) * advantage).mean()
        value_loss = nn.functional.mse_loss(value, returns)
        loss = policy_loss + 0.5 * value_loss - 0.01 * dist.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(((returns - 3 * obs[:, 0].abs()).mean().item() / 2, value_loss.item()))
        if it % 80 == 79:
            tail = torch.tensor(history[-40:]).mean(0)
            print(f"iter {it} hit rate {tail[0]:.3f} value loss {tail[1]:.3f}")


WATCH = ()
