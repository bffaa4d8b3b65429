"""Loops in which no step uses the gradients."""

import torch
from torch import nn


def _policy(optimizer=torch.optim.AdamW, **options):
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    return model, optimizer(model.parameters(), **options)


def step_was_forgotten():
    model, optimizer = _policy()

    def loop(model, optimizer):
        for _ in range(10):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()  # DK502

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"message": "never stepped in 10 calls"}}


def optimizer_of_another_copy_steps():
    """The optimizer of the loop was built on a copy of the model before the model was moved."""
    model, optimizer = _policy()
    other = torch.optim.SGD(nn.Linear(3, 2).parameters(), lr=0.1)

    def loop(model, optimizer):
        for _ in range(8):
            model.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()  # DK502
            other.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def second_optimizer_is_never_stepped():
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    first = torch.optim.SGD(model[0].parameters(), lr=0.1)
    second = torch.optim.AdamW(model[2].parameters())

    def loop(model, optimizers):
        for _ in range(32):
            model.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            first.step()

    expect = {"message": "AdamW (optimizer 1) never stepped", "severity": "warning"}
    return {"model": model, "optimizer": [first, second], "loop": loop, "expect": expect}


def backward_before_the_loop_only():
    model, optimizer = _policy(torch.optim.SGD, lr=0.1, momentum=0.9)

    def loop(model, optimizer):
        model(torch.randn(4, 3)).square().mean().backward()
        for _ in range(6):
            optimizer.step()  # DK502

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"message": "without a `backward()`"}}


def backward_never():
    """The loss is logged, but backward() is never called."""
    model, optimizer = _policy()

    def loop(model, optimizer):
        for _ in range(6):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).square().mean().item()
            optimizer.step()  # DK502

    return {"model": model, "optimizer": optimizer, "loop": loop}


def reset_before_the_step():
    model, optimizer = _policy()

    def loop(model, optimizer):
        for _ in range(5):
            model(torch.randn(4, 3)).square().mean().backward()
            optimizer.zero_grad()  # DK502
            optimizer.step()

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"message": "no gradient to use"}}


def second_optimizer_reset_in_each_step_of_a_short_run():
    """Its gradients arrive and are reset in each of the ten steps, and it never steps."""
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    first = torch.optim.SGD(model[0].parameters(), lr=0.1)
    second = torch.optim.AdamW(model[2].parameters())

    def loop(model, optimizers):
        for _ in range(10):
            first.zero_grad()
            second.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            first.step()

    expect = {"message": "AdamW (optimizer 1) never stepped in 8 calls", "severity": "warning"}
    return {"model": model, "optimizer": [first, second], "loop": loop, "expect": expect}


def discriminator_that_gets_no_gradient_and_is_only_reset():
    """Nothing reaches it, so only the end of the run can tell."""
    model = nn.ModuleDict({"generator": nn.Linear(3, 2), "discriminator": nn.Linear(2, 1)})
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in model.values()]

    def loop(model, optimizers):
        for _ in range(10):
            for optimizer in optimizers:
                optimizer.zero_grad()
            model["generator"](torch.randn(4, 3)).square().mean().backward()
            optimizers[0].step()

    return {"model": model, "optimizer": optimizers, "loop": loop, "expect": {"message": "SGD (optimizer 1) never"}}


def critic_of_an_adversary_never_steps():
    """The optimizers are of the same class: the line is the one whose variable holds the optimizer."""
    generator, critic = nn.Linear(3, 3), nn.Linear(3, 1)
    of_the_generator = torch.optim.RMSprop(generator.parameters(), lr=1e-3)
    of_the_critic = torch.optim.RMSprop(critic.parameters(), lr=1e-3)  # DK502

    def loop(_model, _optimizers):
        for _ in range(12):
            of_the_critic.zero_grad()
            critic(generator(torch.randn(4, 3)).detach()).square().mean().backward()
            of_the_generator.zero_grad()
            critic(generator(torch.randn(4, 3))).mean().backward()
            of_the_generator.step()

    return {
        "model": nn.ModuleList([generator, critic]),
        "optimizer": [of_the_generator, of_the_critic],
        "loop": loop,
        "expect": {"severity": "warning", "message": "never stepped"},
    }
