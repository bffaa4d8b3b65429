"""Frozen tensors that do not change, and tensors that may change."""

import copy

import torch
from torch import nn


def _program(model, **more):
    loss_fn = lambda model, batch: model(batch).square().mean()  # noqa: E731 - one line is the point here
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.1)
    return {"model": model, "batch": torch.randn(6, 4), "loss_fn": loss_fn, "optimizer": optimizer, **more}


def frozen_tower_in_eval_mode():
    tower = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).requires_grad_(False)
    model = nn.Sequential(tower, nn.Linear(4, 2)).train()
    tower.eval()
    return _program(model)


def trainable_batch_norm_beside_a_frozen_layer():
    model = nn.Sequential(nn.Linear(4, 4).requires_grad_(False), nn.BatchNorm1d(4), nn.Linear(4, 2))
    return _program(model)


def teacher_that_averages_its_student():
    class Student(nn.Module):
        def __init__(self):
            super().__init__()
            self.student = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
            self.teacher = copy.deepcopy(self.student).requires_grad_(False)

        def forward(self, x):
            return self.student(x) - self.teacher(x)

    return _program(Student())


def low_rank_adapter():
    class Adapted(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = nn.Linear(4, 4).requires_grad_(False)
            self.down, self.up = nn.Linear(4, 1, bias=False), nn.Linear(1, 4, bias=False)
            nn.init.zeros_(self.up.weight)

        def forward(self, x):
            return self.base(x) + self.up(self.down(x))

    return _program(Adapted())


def nothing_frozen():
    return _program(nn.Linear(4, 2), expect={"not_examined": "Nothing in the model is frozen"})


def codebook_that_follows_by_moving_averages():
    class Codebook(nn.Module):
        def __init__(self):
            super().__init__()
            self.codes = nn.Embedding(6, 4).requires_grad_(False)
            self.register_buffer("sums", self.codes.weight.clone())
            self.register_buffer("counts", torch.ones(6))

        def forward(self, x):
            chosen = torch.cdist(x, self.codes.weight).argmin(1)
            if self.training:
                with torch.no_grad():
                    one_hot = nn.functional.one_hot(chosen, 6).float()
                    self.counts.lerp_(one_hot.sum(0), 0.01)
                    self.sums.lerp_(one_hot.T @ x, 0.01)
                    self.codes.weight.copy_(self.sums / self.counts[:, None])
            return x + (self.codes(chosen) - x).detach()

    return _program(nn.Sequential(nn.Linear(4, 4), Codebook(), nn.Linear(4, 2)).train())


class MomentumContrast(nn.Module):
    """The encoder of the keys follows that of the queries inside the forward pass, as in MoCo."""

    def __init__(self, momentum):
        super().__init__()
        self.queries, self.momentum = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)), momentum
        self.keys = copy.deepcopy(self.queries).requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            for slow, fast in zip(self.keys.parameters(), self.queries.parameters(), strict=True):
                slow.mul_(self.momentum).add_(fast, alpha=1 - self.momentum)
            keys = self.keys(x)
        return self.queries(x) - keys


def momentum_encoder_that_follows_inside_forward():
    return _program(MomentumContrast(0.99))


def momentum_encoder_that_is_behind():
    model = MomentumContrast(0.9)
    with torch.no_grad():
        for parameter in model.keys.parameters():
            parameter.add_(0.1)
    return _program(model)


def head_first_and_then_everything():
    """The second stage has an optimizer of its own, whose first step is examined too."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    model[:2].requires_grad_(False).eval()

    def steps(model, optimizer):
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(6, 4)).square().mean().backward()
            optimizer.step()

    def loop(model, _):
        steps(model, torch.optim.Adam(model[2].parameters(), lr=0.01))
        model.requires_grad_(True).train()
        steps(model, torch.optim.Adam(model.parameters(), lr=0.01))

    return {"model": model, "loop": loop}


def critic_that_is_frozen_while_the_actor_trains():
    """The actor's first step begins a stage, when the critic is frozen; the critic's next step thaws it."""
    model = nn.ModuleDict({"actor": nn.Linear(4, 2), "critic": nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 1))})

    def loop(model, _):
        actor, critic = model["actor"], model["critic"]
        first, second = torch.optim.Adam(critic.parameters()), torch.optim.Adam(actor.parameters())
        for number in range(8):
            states = torch.randn(6, 4)
            critic.requires_grad_(True)
            first.zero_grad()
            critic(torch.cat([states, actor(states).detach()], 1)).square().mean().backward()
            first.step()
            if number < 3:
                continue
            critic.requires_grad_(False)
            second.zero_grad()
            critic(torch.cat([states, actor(states)], 1)).mean().neg().backward()
            second.step()

    return {"model": model, "loop": loop}
