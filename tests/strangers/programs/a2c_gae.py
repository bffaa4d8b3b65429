"""A2C with generalised advantage estimation on a hand-written batch of auto-resetting grid environments.

fault gae_mask_late: none
fault entropy_penalised: none
fault bootstrap_zero: none
fault rollout_wrong_flatten: none
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from typing import NamedTuple


class VecGrid:
    """n agents on a 5x5 grid with walls around it, each with its own goal; reward 1 on arrival, episode limit 20 as termination."""
    MOVES = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])

    def __init__(self, n, seed):
        self.n, self.g = n, torch.Generator().manual_seed(seed)
        self.pos, self.goal = self._fresh(), self._fresh()
        self.clock = torch.randint(0, 20, (n,), generator=self.g)

    def _fresh(self):
        return torch.randint(0, 5, (self.n, 2), generator=self.g)

    def observe(self):
        return torch.cat([F.one_hot(self.pos, 5).flatten(1), F.one_hot(self.goal, 5).flatten(1),
                          self.clock[:, None] / 20], 1).float()

    def step(self, action):
        self.pos = (self.pos + self.MOVES[action]).clamp(0, 4)
        self.clock = self.clock + 1
        hit = (self.pos == self.goal).all(1)
        done = hit | (self.clock >= 20)
        self.pos = torch.where(done[:, None], self._fresh(), self.pos)
        self.goal = torch.where(done[:, None], self._fresh(), self.goal)
        self.clock = torch.where(done, 0, self.clock)
        return self.observe(), hit.float() - 0.02, done.float()


class Rollout(NamedTuple):
    obs: torch.Tensor      # [T, N, obs]
    action: torch.Tensor   # [T, N]
    reward: torch.Tensor
    done: torch.Tensor
    value: torch.Tensor
    last_value: torch.Tensor


class ActorCritic(nn.Module):
    def __init__(self, n_obs, n_act, h=64):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(n_obs, h), nn.Tanh(), nn.Linear(h, n_act))
        self.critic = nn.Sequential(nn.Linear(n_obs, h), nn.Tanh(), nn.Linear(h, 1))
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.orthogonal_(m.weight, 2 ** 0.5)
                nn.init.zeros_(m.bias)
        nn.init.orthogonal_(self.actor[-1].weight, 0.01)
        nn.init.orthogonal_(self.critic[-1].weight, 1.0)

    def forward(self, obs):
        return torch.distributions.Categorical(logits=self.actor(obs)), self.critic(obs).squeeze(-1)


@torch.no_grad()
def unroll(env, net, obs, length):
    rows = []
    for _ in range(length):
        pi, value = net(obs)
        action = pi.sample()
        nxt, reward, done = env.step(action)
        rows.append((obs, action, reward, done, value))
        obs = nxt
    cols = [torch.stack(c) for c in zip(*rows)]
    return Rollout(*cols, last_value=net(obs)[1]), obs  #! bootstrap_zero: return Rollout(*cols, last_value=torch.zeros(env.n)), obs


def gae(ro, gamma=0.97, lam=0.95):
    adv, running = torch.zeros_like(ro.reward), torch.zeros_like(ro.last_value)
    for t in range(len(ro.reward) - 1, -1, -1):
        nxt = ro.value[t + 1] if t + 1 < len(ro.value) else ro.last_value
        alive = 1.0 - ro.done[t]  #! gae_mask_late: alive = 1.0 - ro.done[max(t - 1, 0)]
        delta = ro.reward[t] + gamma * alive * nxt - ro.value[t]
        running = delta + gamma * lam * alive * running
        adv[t] = running
    return adv, adv + ro.value


def train(updates=150, n_envs=16, length=16):
    torch.manual_seed(41)
    env = VecGrid(n_envs, 42)
    obs = env.observe()
    net = ActorCritic(obs.shape[1], 4)
    opt = torch.optim.RMSprop(net.parameters(), lr=3e-3, alpha=0.99, eps=1e-5)
    sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.1, total_iters=updates)
    rewards = []
    for _ in range(updates):
        ro, obs = unroll(env, net, obs, length)
        adv, target = gae(ro)
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        pi, value = net(ro.obs.flatten(0, 1))
        action = ro.action.flatten()  #! rollout_wrong_flatten: action = ro.action.t().flatten()
        policy_loss = -(pi.log_prob(action) * adv.flatten()).mean()
        value_loss = F.mse_loss(value, target.flatten())
        loss = policy_loss + 0.5 * value_loss - 0.01 * pi.entropy().mean()  #! entropy_penalised: loss = policy_loss + 0.5 * value_loss + 0.01 * pi.entropy().mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
        sched.step()
        rewards.append(ro.reward.mean().item())
    train.score = sum(rewards[:10]) / 10, sum(rewards[-10:]) / 10
    return [-r for r in rewards]


WATCH = ()
