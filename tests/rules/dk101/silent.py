"""Optimizers that hold every parameter that trains."""

import torch
from torch import nn


def _program(model, optimizer, **more):
    loss_fn = lambda model, batch: model(batch).square().mean()  # noqa: E731 - one line is the point here
    return {"model": model, "batch": torch.randn(5, 4), "loss_fn": loss_fn, "optimizer": optimizer, **more}


def everything_in_one_group():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    return _program(model, torch.optim.AdamW(model.parameters()))


def frozen_tower_left_out():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    return _program(model, torch.optim.AdamW(model[1].parameters()))


def tied_weights():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    return _program(model, torch.optim.SGD(model.parameters(), lr=0.1))


def several_optimizers_over_one_model():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    return _program(model, [torch.optim.SGD(model[0].parameters(), lr=0.1), torch.optim.AdamW(model[1].parameters())])


def weight_normalised_layer():
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.Linear(4, 2))
    return _program(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))


def optimizer_with_state_and_gradients_of_a_running_loop():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(5, 4)).sum().backward()
    optimizer.step()
    return _program(model, optimizer)


def no_optimizer():
    return _program(nn.Linear(4, 2), None, expect={"not_examined": "No optimizer was given"})


def network_of_another_optimizer_that_the_loss_function_holds():
    model, critic = nn.Linear(4, 4), nn.Linear(4, 1)

    def loss_fn(model, batch):
        return -critic(model(batch)).mean()

    return {
        "model": model,
        "batch": torch.randn(5, 4),
        "loss_fn": loss_fn,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
    }


def temperature_in_a_closure_that_the_optimizer_holds():
    model, scale = nn.Linear(4, 2), nn.Parameter(torch.ones(()))
    return {
        "model": model,
        "batch": torch.randn(5, 4),
        "loss_fn": lambda model, batch: model(batch).square().mean() * scale.exp(),
        "optimizer": torch.optim.SGD([*model.parameters(), scale], lr=0.1),
    }


def generator_whose_optimizer_steps_second_and_is_found_then():
    """No optimizer is passed in, and the generator gets a gradient before its own optimizer has stepped."""
    generator, critic = nn.Linear(4, 3), nn.Linear(3, 1)

    def loop(model, _):
        optimizers = [torch.optim.Adam(network.parameters(), lr=1e-3) for network in (critic, model)]
        for sign, optimizer in [(1, optimizers[0]), (-1, optimizers[1])] * 6:
            for each in optimizers:
                each.zero_grad()
            (sign * critic(model(torch.randn(8, 4)))).mean().backward()
            optimizer.step()

    return {"model": generator, "loop": loop}


def structure_without_numbers_that_runs_with_those_of_the_optimizer():
    """A module on the meta device, called with the stacked weights of an ensemble."""
    structure = nn.Linear(4, 2, device="meta")
    weight, bias = nn.Parameter(torch.randn(3, 2, 4)), nn.Parameter(torch.zeros(3, 2))

    def loop(model, _):
        optimizer = torch.optim.Adam([weight, bias], lr=1e-2)
        for _ in range(12):
            optimizer.zero_grad()
            call = torch.func.vmap(lambda w, b, x: torch.func.functional_call(model, {"weight": w, "bias": b}, (x,)))
            call(weight, bias, torch.randn(3, 8, 4)).square().mean().backward()
            optimizer.step()

    return {"model": structure, "loop": loop}


def stage_that_trains_more_parts():
    """The probe is detached when the second stage begins: what it knows of the optimizers is older than the model."""
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))

    def loop(model, _):
        for parts in (model[2:], model):
            for parameter in model.parameters():
                parameter.requires_grad_(False)
            for parameter in parts.parameters():
                parameter.requires_grad_(True)
            optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
            for _ in range(30):
                optimizer.zero_grad()
                model(torch.randn(4, 3)).square().mean().backward()
                optimizer.step()

    return {"model": model, "loop": loop}
