"""Healthy loops whose gradient norm varies, falls, alternates, or returns to an earlier level."""

import torch
from torch import nn


def _policy():
    return nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2))


def _program(scale_of, steps=60, lr=1e-3, clip=None, batch=16):
    model = _policy()

    def loop(model, optimizer):
        for step in range(steps):
            state, action = torch.randn(batch, 3), torch.randn(batch, 2) * scale_of(step)
            optimizer.zero_grad()
            (model(state) - action).square().mean().backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()

    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=lr), "loop": loop}


def plain_noise():
    return _program(lambda _: 1.0)


def batches_of_one_sample():
    return _program(lambda _: 1.0, steps=200, batch=1)


def tasks_that_alternate():
    """Every tenth batch is another embodiment, with actions a hundred times larger."""
    return _program(lambda step: 100.0 if step % 10 == 0 else 1.0)


def a_spike_that_clipping_tames():
    return _program(lambda step: 1000.0 if step == 30 else 1.0, clip=0.5)


def a_spike_in_the_first_steps():
    return _program(lambda step: 1000.0 if step == 5 else 1.0)


def batch_overfitted_and_then_a_new_one():
    """The norm falls by four orders of magnitude. The next batch brings it back to its earlier level."""
    model = _policy()

    def loop(model, optimizer):
        state, action = torch.randn(4, 3), torch.randn(4, 2)
        for step in range(300):
            if step == 290:
                state, action = torch.randn(4, 3), torch.randn(4, 2)
            optimizer.zero_grad()
            (model(state) - action).square().mean().backward()
            optimizer.step()

    return {"model": model, "optimizer": torch.optim.Adam(model.parameters(), lr=1e-2), "loop": loop}


def gan():
    model = nn.ModuleDict({"generator": nn.Linear(2, 3), "discriminator": nn.Linear(3, 1)})
    generator = torch.optim.Adam(model["generator"].parameters(), lr=0.01)
    discriminator = torch.optim.Adam(model["discriminator"].parameters(), lr=0.01)

    def loop(model, optimizers):
        bce = nn.functional.binary_cross_entropy_with_logits
        for _ in range(60):
            fake = model["generator"](torch.randn(8, 2))
            real = torch.randn(8, 3) + 1.0
            discriminator.zero_grad()
            (
                bce(model["discriminator"](fake.detach()), torch.zeros(8, 1))
                + bce(model["discriminator"](real), torch.ones(8, 1))
            ).backward()
            discriminator.step()
            generator.zero_grad()
            bce(model["discriminator"](fake), torch.ones(8, 1)).backward()
            generator.step()

    return {"model": model, "optimizer": [generator, discriminator], "loop": loop}


def experts_without_a_gradient_in_most_steps():
    """A mixture's expert gets a gradient only in some steps. In the others its optimizer has zero gradients."""
    model = nn.ModuleList([nn.Linear(3, 2), nn.Linear(3, 2)])
    optimizers = [torch.optim.SGD(expert.parameters(), lr=0.01) for expert in model]

    def loop(model, optimizers):
        for step in range(60):
            out = model[0](torch.randn(8, 3))
            out = out + (1.0 if step % 7 == 0 else 0.0) * model[1](torch.randn(8, 3))
            (out - 1).square().mean().backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()

    return {"model": model, "optimizer": optimizers, "loop": loop}


def accumulation_with_a_scaler():
    model = _policy()

    def loop(model, optimizer):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=5)
        for _ in range(40):
            for _ in range(3):
                with torch.autocast("cpu", dtype=torch.float16):
                    loss = (model(torch.randn(8, 3)).float() - 1).square().mean() / 3
                scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.01), "loop": loop}


def harder_batches_from_the_twelfth_step_on():
    """The norm rises to another level and stays there: a curriculum."""
    return _program(lambda step: 100.0 if step >= 11 else 1.0, steps=18)


def five_steps_only():
    return _program(lambda _: 1.0, steps=5) | {"expect": {"not_examined": "5 of 10 steps"}}
