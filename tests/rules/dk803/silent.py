"""Correct ways to call the module inside a wrapper."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from two_ranks import alone, leave


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, state):
        return self.head(self.body(state))


def _train(step, **options):
    alone()
    wrapper = DistributedDataParallel(Policy(), **options)
    optimizer = torch.optim.SGD(wrapper.parameters(), lr=0.1)

    def loop(model, optimizer):
        try:
            for _ in range(3):
                step(model, optimizer)
        finally:
            leave()

    return {"model": wrapper, "optimizer": optimizer, "loop": loop}


def _step(model, optimizer):
    optimizer.zero_grad()
    model(torch.randn(4, 3)).square().mean().backward()
    optimizer.step()


def wrapper_is_called():
    return _train(_step)


def evaluation_through_the_module():
    """Needed if only rank 0 evaluates: a call through the wrapper would wait for the other ranks."""

    def step(model, optimizer):
        _step(model, optimizer)
        with torch.no_grad():
            model.module(torch.randn(4, 3))
        model.module(torch.randn(4, 3)).square().mean().item()  # without no_grad, but also without a backward

    return _train(step)


def input_gradients_in_evaluation():
    """A saliency map: backward through the inner module for the gradient of the input, without a step."""

    def step(model, optimizer):
        _step(model, optimizer)
        state = torch.randn(4, 3, requires_grad=True)
        torch.autograd.grad(model.module(state).sum(), state)

    return _train(step)


def part_used_beside_the_wrapper():
    def step(model, optimizer):
        optimizer.zero_grad()
        state = torch.randn(4, 3)
        penalty = model.module.body(state).square().mean()
        (model(state).square().mean() + penalty).backward()
        optimizer.step()

    return _train(step)


def averaged_by_hand():
    def step(model, optimizer):
        optimizer.zero_grad()
        model.module(torch.randn(4, 3)).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        optimizer.step()

    return _train(step)


def accumulation():
    def step(model, optimizer):
        optimizer.zero_grad()
        with model.no_sync():
            model(torch.randn(4, 3)).square().mean().backward()
        model(torch.randn(4, 3)).square().mean().backward()
        optimizer.step()

    return _train(step)


def discriminator_at_the_generators_turn():
    """The generator's step calls it without its wrapper; the gradients are discarded before its own step."""
    alone()
    model = nn.ModuleDict(
        {
            "generator": DistributedDataParallel(nn.Linear(2, 3)),
            "discriminator": DistributedDataParallel(nn.Linear(3, 1)),
        }
    )
    generator = torch.optim.SGD(model["generator"].parameters(), lr=0.1)
    discriminator = torch.optim.SGD(model["discriminator"].parameters(), lr=0.1)

    def loop(model, optimizers):
        try:
            for _ in range(3):
                fake = model["generator"](torch.randn(4, 2))
                model["discriminator"].zero_grad()
                judged = model["discriminator"](torch.cat([fake.detach(), torch.randn(4, 3)]))
                (judged[:4].mean() - judged[4:].mean()).backward()
                discriminator.step()
                generator.zero_grad()
                (-model["discriminator"].module(fake).mean()).backward()
                generator.step()
        finally:
            leave()

    return {"model": model, "optimizer": [generator, discriminator], "loop": loop}


def checked_before_training():
    alone()
    model = DistributedDataParallel(Policy())
    return {
        "model": model,
        "batch": torch.randn(4, 3),
        "loss_fn": lambda model, batch: model(batch).square().mean(),
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
    }


def nothing_wraps_the_model():
    leave()
    model = Policy()
    return {
        "model": model,
        "batch": torch.randn(4, 3),
        "loss_fn": lambda model, batch: model(batch).square().mean(),
        "expect": {"not_examined": "wraps this model"},
    }
