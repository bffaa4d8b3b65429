"""Optimizers that correctly hold more than the model's parameters."""

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        return {"loss": self.head(self.vision(x)).square().mean()}


def _program(model, optimizer, **more):
    return {"model": model, "batch": {"x": torch.randn(5, 3)}, "optimizer": optimizer, **more}


def head_replaced_before():
    model = Policy()
    model.head = nn.Linear(4, 7)
    return _program(model, torch.optim.AdamW(model.parameters()))


def new_head_added_to_the_optimizer():
    model = Policy()
    optimizer = torch.optim.AdamW(model.parameters())
    model.head = nn.Linear(4, 7)
    optimizer.add_param_group({"params": model.head.parameters()})
    return _program(model, optimizer)


def temperature_of_the_loss():
    model, temperature = Policy(), nn.Parameter(torch.ones(()))
    optimizer = torch.optim.AdamW([*model.parameters(), temperature])
    return _program(model, optimizer, loss_fn=lambda model, batch: model(**batch)["loss"] * temperature)


def one_optimizer_for_actor_and_critic():
    actor, critic = Policy(), Policy()
    return _program(actor, torch.optim.AdamW([*actor.parameters(), *critic.parameters()]))


def discriminator_with_its_own_optimizer():
    generator, discriminator = Policy(), nn.Linear(2, 1)
    optimizers = [torch.optim.Adam(generator.parameters()), torch.optim.Adam(discriminator.parameters())]
    return _program(generator, optimizers)


def discriminator_beside_a_parameter_that_was_forgotten():
    generator, discriminator = Policy(), nn.Linear(2, 1)
    optimizers = [torch.optim.Adam(generator.head.parameters()), torch.optim.Adam(discriminator.parameters())]
    return _program(generator, optimizers)


def frozen_tower_replaced():
    model = Policy()
    optimizer = torch.optim.AdamW(model.parameters())
    model.vision = nn.Linear(3, 4).requires_grad_(False)
    return _program(model, optimizer)


def tied_weights():
    model = Policy()
    model.other = nn.Linear(4, 2)
    model.other.weight = model.head.weight
    return _program(model, torch.optim.AdamW(model.parameters()))


def no_optimizer():
    return _program(Policy(), None, expect={"not_examined": "No optimizer was given"})


def float32_master_of_a_float16_model():
    model = Policy().half()
    master = [parameter.detach().float().requires_grad_() for parameter in model.parameters()]
    optimizer = torch.optim.AdamW(master)

    def loop(model, optimizer):
        for _ in range(4):
            model.zero_grad()
            model(torch.randn(5, 3).half())["loss"].backward()
            for own, half in zip(master, model.parameters(), strict=True):
                own.grad = half.grad.float()
            optimizer.step()
            with torch.no_grad():
                for own, half in zip(master, model.parameters(), strict=True):
                    half.copy_(own)

    return {"model": model, "optimizer": optimizer, "loop": loop}


def generator_whose_optimizer_steps_second_and_is_found_then():
    """No optimizer is passed in, and the first one to step is the critic's."""
    generator = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    critic = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))

    def loop(model, _):
        optimizers = [torch.optim.Adam(network.parameters(), lr=1e-3) for network in (critic, model)]
        for sign, optimizer in [(1, optimizers[0]), (-1, optimizers[1])] * 6:
            for each in optimizers:
                each.zero_grad()
            (sign * critic(model(torch.randn(16, 4)))).mean().backward()
            optimizer.step()

    return {"model": generator, "loop": loop}
