"""Models with more than one optimizer: adversaries, actor and critic, a target network, sparse embeddings."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam, AdamW, RMSprop, SparseAdam

from healthy.adapters_and_gates import vector_loss, vectors
from healthy.program import STEPS, Program, program


class Adversaries(nn.Module):
    """A generator and the discriminator it tries to deceive."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(4, 32), nn.LeakyReLU(0.2), nn.Linear(32, 6))
        self.discriminator = nn.Sequential(nn.Linear(6, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))


def noise_for(batch: Tensor) -> Tensor:
    """What the generator starts from, (B, 4)."""
    return torch.randn(len(batch), 4, device=batch.device)


def generator_loss(model: Adversaries, batch: Tensor) -> Tensor:
    """The discriminator's verdict on fakes, held against `real`."""
    verdict = model.discriminator(model.generator(noise_for(batch)))
    return F.binary_cross_entropy_with_logits(verdict, torch.ones_like(verdict))


def discriminator_loss(model: Adversaries, batch: Tensor) -> Tensor:
    """Real ones against detached fakes."""
    real, fake = model.discriminator(batch), model.discriminator(model.generator(noise_for(batch)).detach())
    return F.binary_cross_entropy_with_logits(real, torch.ones_like(real)) + F.binary_cross_entropy_with_logits(
        fake, torch.zeros_like(fake)
    )


def adversaries() -> tuple[Adversaries, list[Adam]]:
    """The pair, with an optimizer for each."""
    model = Adversaries()
    return model, [Adam(part.parameters(), lr=2e-4) for part in (model.discriminator, model.generator)]


def alternate(self: Program) -> None:
    """The usual loop: the generator's backward leaves gradients in the discriminator, which clears them at its turn."""
    second, first = self.optimizer
    for _ in range(STEPS):
        batch = self.draw()
        second.zero_grad()
        discriminator_loss(self.model, batch).backward()
        second.step()
        first.zero_grad()
        generator_loss(self.model, batch).backward()
        first.step()


@program
def adversaries_checked_at_the_generators_step() -> Program:
    model, optimizers = adversaries()
    return Program(model, lambda: torch.randn(8, 6), generator_loss, optimizers, alternate)


@program
def adversaries_checked_at_the_discriminators_step() -> Program:
    model, optimizers = adversaries()
    return Program(model, lambda: torch.randn(8, 6), discriminator_loss, optimizers, alternate)


@program
def wasserstein_critic_with_a_gradient_penalty() -> Program:
    """A second derivative in the loss, five critic steps for each of the generator, clipping by value."""
    model = Adversaries()
    optimizers = [RMSprop(part.parameters(), lr=1e-4) for part in (model.discriminator, model.generator)]

    def critic_loss(model: nn.Module, batch: Tensor) -> Tensor:
        fake = model.generator(noise_for(batch)).detach()
        between = batch.lerp(fake, torch.rand(len(batch), 1, device=batch.device)).requires_grad_()
        (slope,) = torch.autograd.grad(model.discriminator(between).sum(), between, create_graph=True)
        penalty = (slope.norm(dim=1) - 1).square().mean()
        return model.discriminator(fake).mean() - model.discriminator(batch).mean() + 10 * penalty

    def train(self: Program) -> None:
        critic, generator = self.optimizer
        for step in range(2 * STEPS):
            critic.zero_grad()
            self.loss(self.draw()).backward()
            critic.step()
            if step % 5 == 4:
                generator.zero_grad()
                (-model.discriminator(model.generator(torch.randn(8, 4))).mean()).backward()
                generator.step()

    return Program(model, lambda: torch.randn(8, 6), critic_loss, optimizers, train)


@program
def body_and_head_with_an_optimizer_each() -> Program:
    model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 2))
    return Program(
        model, vectors, vector_loss, [AdamW(model[0].parameters(), lr=1e-4), AdamW(model[2].parameters(), lr=1e-3)]
    )


@program
def deep_q_learning_with_a_target_network() -> Program:
    class Values(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.online = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3))
            self.target = copy.deepcopy(self.online).requires_grad_(False)

    def transitions() -> dict[str, Tensor]:
        return {
            "state": torch.randn(16, 4),
            "choice": torch.randint(3, (16, 1)),
            "reward": torch.randn(16, 1),
            "next_state": torch.randn(16, 4),
        }

    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        value = model.online(batch["state"]).gather(1, batch["choice"])  # (B, 1)
        with torch.no_grad():
            future = model.target(batch["next_state"]).amax(1, keepdim=True)
        return F.smooth_l1_loss(value, batch["reward"] + 0.9 * future)

    model = Values()

    def train(self: Program) -> None:
        assert isinstance(self.optimizer, AdamW)
        for step in range(STEPS):
            self.optimizer.zero_grad()
            self.loss(self.draw()).backward()
            self.optimizer.step()
            if step % 4 == 3:
                model.target.load_state_dict(model.online.state_dict())

    return Program(model, transitions, loss_fn, train=train)


@program
def actor_critic_where_the_critic_is_held_still() -> Program:
    """The actor's gradient passes through the critic, which only its own optimizer changes."""

    class ActorCritic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2), nn.Tanh())
            self.critic = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))

    model = ActorCritic()

    def value(state: Tensor, action: Tensor) -> Tensor:
        return model.critic(torch.cat([state, action], -1))[:, 0]

    def loss_fn(_model: nn.Module, batch: Tensor) -> Tensor:
        return F.mse_loss(value(batch, model.actor(batch).detach()), batch.sum(1))

    def train(self: Program) -> None:
        critic, actor = self.optimizer
        for _ in range(STEPS):
            batch = self.draw()
            critic.zero_grad()
            self.loss(batch).backward()
            critic.step()
            model.critic.requires_grad_(False)
            actor.zero_grad()
            (-value(batch, model.actor(batch)).mean()).backward()
            actor.step()
            model.critic.requires_grad_(True)

    optimizers = [Adam(model.critic.parameters(), lr=1e-3), Adam(model.actor.parameters(), lr=1e-4)]
    return Program(model, lambda: torch.randn(8, 4), loss_fn, optimizers, train)


@program
def sparse_embeddings_with_their_own_optimizer() -> Program:
    class Lookup(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(200, 16, sparse=True)
            self.head = nn.Linear(16, 2)

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.words(ids).mean(1))

    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(model(batch["ids"]), batch["labels"])

    model = Lookup()
    optimizers = [SparseAdam(model.words.parameters(), lr=1e-2), AdamW(model.head.parameters(), lr=1e-3)]
    return Program(
        model, lambda: {"ids": torch.randint(200, (8, 5)), "labels": torch.arange(8) % 2}, loss_fn, optimizers
    )
