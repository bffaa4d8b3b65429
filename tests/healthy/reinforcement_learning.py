"""Reinforcement learning as people write it: many passes of tiny networks for each step of the optimizer."""

from __future__ import annotations

import copy
import random
from collections import deque

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Normal
from torch.nn import functional as F

from healthy.loops import optimizer_of
from healthy.program import LONG, Program, program


class Corridor:
    """Walk right to the end within 12 moves; the observation is the place and the time."""

    def reset(self) -> np.ndarray:
        self.place, self.time = 0, 0
        return self._observation()

    def step(self, action: int) -> tuple[np.ndarray, float, bool]:
        self.place, self.time = max(0, self.place + (1 if action == 1 else -1)), self.time + 1
        arrived = self.place == 5
        return self._observation(), 1.0 if arrived else -0.05, arrived or self.time == 12

    def _observation(self) -> np.ndarray:
        return np.array([self.place / 5, self.time / 12, 1.0], dtype=np.float32)


class QNetwork(nn.Module):
    """The value of each of the two moves."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.out = nn.Linear(3, 32), nn.Linear(32, 32), nn.Linear(32, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.relu(self.fc2(F.relu(self.fc1(x)))))


def transitions(count: int = 32) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """States, moves, rewards, next states, and whether the episode ended."""
    place, time = torch.randint(5, (count,)), torch.randint(11, (count,))
    move = torch.randint(2, (count,))
    after = (place + 2 * move - 1).clamp(min=0)
    ended = (after == 5).float()
    state = torch.stack([place / 5, time / 12, torch.ones(count)], 1)
    return state, move, ended * 1.05 - 0.05, torch.stack([after / 5, (time + 1) / 12, torch.ones(count)], 1), ended


@program
def deep_q_learning_with_replay_and_epsilon() -> Program:
    policy_net = QNetwork()
    target_net = copy.deepcopy(policy_net)
    optimizer = torch.optim.AdamW(policy_net.parameters(), lr=1e-3, amsgrad=True)

    def loss_fn(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        state, move, reward, after, ended = batch
        values = model(state).gather(1, move[:, None]).squeeze(1)
        with torch.no_grad():
            best = target_net(after).max(1).values
        return F.smooth_l1_loss(values, reward + 0.9 * best * (1 - ended))

    def train(self: Program) -> None:
        env, memory, updates, epsilon = Corridor(), deque(maxlen=500), 0, 1.0
        while updates < self.steps:
            state, done = env.reset(), False
            while not done and updates < self.steps:
                if random.random() < epsilon:
                    action = random.randrange(2)
                else:
                    with torch.no_grad():
                        action = int(policy_net(torch.from_numpy(state)[None]).argmax())
                after, reward, done = env.step(action)
                memory.append((state, action, reward, after, float(done)))
                state, epsilon = after, max(0.1, epsilon * 0.97)
                if len(memory) < 32:
                    continue
                columns = zip(*random.sample(memory, 32), strict=True)
                states, actions, rewards, afters, dones = (torch.as_tensor(np.array(column)) for column in columns)
                loss = self.loss((states, actions, rewards.float(), afters, dones.float()))
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_value_(policy_net.parameters(), 100)
                optimizer.step()
                updates += 1
                own, theirs = policy_net.state_dict(), target_net.state_dict()
                target_net.load_state_dict({key: 0.05 * own[key] + 0.95 * theirs[key] for key in own})

    return Program(policy_net, transitions, loss_fn, optimizer, train, steps=LONG)


class ActorCritic(nn.Module):
    """CleanRL's agent: two small towers."""

    def __init__(self) -> None:
        super().__init__()
        self.critic = nn.Sequential(self.layer(3, 32), nn.Tanh(), self.layer(32, 1, 1.0))
        self.actor = nn.Sequential(self.layer(3, 32), nn.Tanh(), self.layer(32, 2, 0.01))

    @staticmethod
    def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
        linear = nn.Linear(inputs, outputs)
        nn.init.orthogonal_(linear.weight, gain)
        nn.init.zeros_(linear.bias)
        return linear

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(x), self.critic(x).squeeze(-1)


def rollout() -> dict[str, Tensor]:
    """What an update of PPO is computed from."""
    return {
        "obs": torch.rand(16, 3),
        "action": torch.randint(2, (16,)),
        "logprob": torch.full((16,), -0.6931),
        "advantage": torch.randn(16),
        "return": torch.randn(16),
    }


def ppo_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Clipped surrogate, value and entropy."""
    logits, value = model(batch["obs"])
    policy = Categorical(logits=logits)
    ratio = (policy.log_prob(batch["action"]) - batch["logprob"]).exp()
    advantage = (batch["advantage"] - batch["advantage"].mean()) / (batch["advantage"].std() + 1e-8)
    surrogate = torch.max(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2)).mean()
    return surrogate + 0.5 * F.mse_loss(value, batch["return"]) - 0.01 * policy.entropy().mean()


def play(agent: ActorCritic, env: Corridor, moves: int) -> dict[str, Tensor]:
    """One rollout with generalised advantages."""
    obs, actions, logprobs, rewards, values, dones = [], [], [], [], [], []
    state = torch.from_numpy(env.reset())
    for _ in range(moves):
        with torch.no_grad():
            logits, value = agent(state[None])
            policy = Categorical(logits=logits)
            action = policy.sample()
        after, reward, done = env.step(int(action))
        obs.append(state), actions.append(action[0]), logprobs.append(policy.log_prob(action)[0])
        rewards.append(reward), values.append(value[0]), dones.append(done)
        state = torch.from_numpy(env.reset() if done else after)
    with torch.no_grad():
        following, advantages, last = agent(state[None])[1][0], [], 0.0
    for reward, value, done in zip(reversed(rewards), reversed(values), reversed(dones), strict=True):
        last = reward + 0.95 * following * (not done) - value + 0.95 * 0.95 * (not done) * last
        advantages.insert(0, last)
        following = value
    advantage = torch.stack(advantages)
    return {
        "obs": torch.stack(obs),
        "action": torch.stack(actions),
        "logprob": torch.stack(logprobs),
        "advantage": advantage,
        "return": advantage + torch.stack(values),
    }


@program
def proximal_policy_optimisation_in_minibatches() -> Program:
    agent = ActorCritic()
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-3, eps=1e-5)

    def train(self: Program) -> None:
        env, updates = Corridor(), 0
        while updates < self.steps:
            optimizer.param_groups[0]["lr"] = 2.5e-3 * (1 - updates / self.steps)
            data, order = play(agent, env, 32), np.arange(32)
            for _epoch in range(2):
                np.random.shuffle(order)
                for begin in range(0, 32, 16):
                    rows = torch.from_numpy(order[begin : begin + 16])
                    loss = self.loss({name: column[rows] for name, column in data.items()})
                    optimizer.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                    optimizer.step()
                    updates += 1

    return Program(agent, rollout, ppo_loss, optimizer, train, steps=LONG)


@program
def policy_gradient_of_whole_episodes() -> Program:
    """REINFORCE: one backward for each episode, through every forward of it."""
    policy = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 2))

    def loss_fn(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        state, move, gain = batch
        return -(Categorical(logits=model(state)).log_prob(move) * gain).sum()

    def train(self: Program) -> None:
        optimizer, env, running = optimizer_of(self), Corridor(), 0.0
        for _episode in range(self.steps):
            state, done, logs, rewards = env.reset(), False, [], []
            while not done:
                choice = Categorical(logits=policy(torch.from_numpy(state)[None]))
                action = choice.sample()
                logs.append(choice.log_prob(action))
                state, reward, done = env.step(int(action))
                rewards.append(reward)
            gains, total = [], 0.0
            for reward in reversed(rewards):
                total = reward + 0.95 * total
                gains.insert(0, total)
            gain = torch.tensor(gains)
            gain = (gain - gain.mean()) / (gain.std() + 1e-6)
            running = 0.05 * sum(rewards) + 0.95 * running
            optimizer.zero_grad()
            torch.cat([-log * g for log, g in zip(logs, gain, strict=True)]).sum().backward()
            optimizer.step()

    def draw() -> tuple[Tensor, Tensor, Tensor]:
        return torch.rand(8, 3), torch.randint(2, (8,)), torch.randn(8)

    return Program(policy, draw, loss_fn, torch.optim.Adam(policy.parameters(), lr=3e-3), train, steps=LONG)


class Gaussian(nn.Module):
    """Soft actor-critic's networks: an actor, two critics and the logarithm of a temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 2))
        self.q1, self.q2 = (nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1)) for _ in range(2))
        self.log_alpha = nn.Parameter(torch.zeros(()))

    def act(self, state: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.actor(state).chunk(2, -1)
        normal = Normal(mean, log_std.clamp(-5, 2).exp())
        raw = normal.rsample()
        return raw.tanh(), (normal.log_prob(raw) - torch.log(1 - raw.tanh() ** 2 + 1e-6)).squeeze(-1)

    def values(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.cat([state, action], -1)
        return self.q1(both).squeeze(-1), self.q2(both).squeeze(-1)


@program
def soft_actor_critic_with_a_learned_temperature() -> Program:
    model = Gaussian()
    target = copy.deepcopy(model).requires_grad_(False)
    critics = [*model.q1.parameters(), *model.q2.parameters()]
    q_optimizer = torch.optim.Adam(critics, lr=1e-3)
    actor_optimizer = torch.optim.Adam(model.actor.parameters(), lr=3e-4)
    alpha_optimizer = torch.optim.Adam([model.log_alpha], lr=1e-3)

    def draw() -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return torch.rand(16, 3), torch.rand(16, 1) * 2 - 1, torch.randn(16), torch.rand(16, 3)

    def critic_loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        state, action, reward, after = batch
        with torch.no_grad():
            following, log = model.act(after)
            goal = reward + 0.9 * (torch.min(*target.values(after, following)) - model.log_alpha.exp() * log)
        return sum(F.mse_loss(value, goal) for value in model.values(state, action))

    def train(self: Program) -> None:
        for _ in range(self.steps):
            batch = self.draw()
            q_optimizer.zero_grad()
            self.loss(batch).backward()
            q_optimizer.step()
            action, log = model.act(batch[0])
            actor_loss = (model.log_alpha.exp().detach() * log - torch.min(*model.values(batch[0], action))).mean()
            actor_optimizer.zero_grad()
            actor_loss.backward()
            actor_optimizer.step()
            alpha_loss = -(model.log_alpha.exp() * (log.detach() - 1.0)).mean()
            alpha_optimizer.zero_grad()
            alpha_loss.backward()
            alpha_optimizer.step()
            with torch.no_grad():
                for own, theirs in zip(model.parameters(), target.parameters(), strict=True):
                    theirs.lerp_(own, 0.01)

    return Program(model, draw, critic_loss, [q_optimizer, actor_optimizer, alpha_optimizer], train, steps=LONG)


@program
def value_of_episodes_that_become_longer() -> Program:
    """The loss is a sum over the episode, and a better policy survives longer: it rises while the values improve."""
    critic = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(critic.parameters(), lr=0.1)

    def loss_fn(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        states, returns = batch
        return F.smooth_l1_loss(model(states).squeeze(-1), returns, reduction="sum")

    def train(self: Program) -> None:
        optimizer, values = optimizer_of(self), []
        for episode in range(self.steps):
            length = 6 + 6 * episode
            for time in range(length):
                values.append(self.model(torch.tensor([time / 100, (time % 7) / 7, 1.0])))
            returns = torch.tensor([1 - 0.9 ** (length - time) for time in range(length)]) * 10
            loss = F.smooth_l1_loss(torch.cat(values), returns, reduction="sum")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            del values[:]

    return Program(critic, lambda: (torch.rand(16, 3), torch.rand(16)), loss_fn, optimizer, train, steps=LONG)
