"""Transitions of an environment: a Q network with a target network, and an actor with a critic."""

from __future__ import annotations

import random

from injection.architectures import Part, kind


@kind
def deep_q(chance: random.Random) -> Part:
    data = """
STATE, ACTIONS = 4, 3


class Data(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.state = torch.randn(count, STATE, generator=generator)
        self.action = torch.randint(ACTIONS, (count,), generator=generator)
        push = F.one_hot(self.action, STATE).float() - 0.3
        self.next_state = 0.8 * self.state + 0.3 * push
        self.reward = self.next_state[:, 0] - 0.1 * self.next_state.square().sum(-1)
        self.done = (torch.rand(count, generator=generator) < 0.1).float()

    def __len__(self):
        return len(self.state)

    def __getitem__(self, index):
        names = ("state", "action", "next_state", "reward", "done")
        return {name: getattr(self, name)[index] for name in names}
"""
    model = f"""
class QNetwork(nn.Module):
    def __init__(self, width={chance.choice((32, 64))}):
        super().__init__()
        self.fc1 = nn.Linear(STATE, width)
        self.fc2 = nn.Linear(width, width)
        self.activation = nn.{chance.choice(("ReLU", "Tanh"))}()
        self.head = nn.Linear(width, ACTIONS)

    def forward(self, state):
        x = self.activation(self.fc1(state))
        x = self.activation(self.fc2(x))
        return self.head(x)


def build_model():
    return QNetwork()
"""
    loss = """
def compute_loss(model, batch):
    batch = {name: value.to(device) for name, value in batch.items()}
    values = model(batch["state"]).gather(1, batch["action"][:, None]).squeeze(1)
    with torch.no_grad():
        best = target_network(batch["next_state"]).max(dim=1).values
        target = batch["reward"] + 0.9 * (1 - batch["done"]) * best
    return F.smooth_l1_loss(values, target)
"""
    after = "target_network = copy.deepcopy(model).requires_grad_(False)\n"
    loop: dict[str, object] = {
        "after_step": "if step % 4 == 0:\n    target_network.load_state_dict(model.state_dict())"
    }
    return Part(model, data, loss, "reinforcement", after=after, loop=loop)


@kind
def actor_critic(chance: random.Random) -> Part:
    part = deep_q(chance)
    model = f"""
class ActorCritic(nn.Module):
    def __init__(self, width={chance.choice((32, 64))}):
        super().__init__()
        self.fc1 = nn.Linear(STATE, width)
        self.activation = nn.Tanh()
        self.actor = nn.Linear(width, ACTIONS)
        self.critic = nn.Linear(width, 1)

    def forward(self, state):
        x = self.activation(self.fc1(state))
        return self.actor(x), self.critic(x).squeeze(-1)


def build_model():
    return ActorCritic()
"""
    loss = f"""
def compute_loss(model, batch):
    batch = {{name: value.to(device) for name, value in batch.items()}}
    logits, value = model(batch["state"])
    policy = torch.distributions.Categorical(logits=logits)
    advantage = (batch["reward"] - value).detach()
    actor = -(policy.log_prob(batch["action"]) * advantage).mean()
    critic = F.mse_loss(value, batch["reward"])
    return actor + 0.5 * critic - {chance.choice((0.01, 0.02))} * policy.entropy().mean()
"""
    return Part(model, part.data, loss, "reinforcement")
