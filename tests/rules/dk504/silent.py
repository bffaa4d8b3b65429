"""Healthy ways to clip."""

import math

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_


def _policy():
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    return model, torch.optim.AdamW(model.parameters())


def _program(clip, micro=1, clip_each=False, after=lambda model: None):
    model, optimizer = _policy()

    def loop(model, optimizer):
        for step in range(6):
            optimizer.zero_grad()
            for _ in range(micro):
                model(torch.randn(4, 3)).square().mean().backward()
                if clip_each:
                    clip(model, step)
            if not clip_each:
                clip(model, step)
            optimizer.step()
            after(model)

    return {"model": model, "optimizer": optimizer, "loop": loop}


def by_norm():
    return _program(lambda model, _: clip_grad_norm_(model.parameters(), 1.0))


def by_value():
    return _program(lambda model, _: clip_grad_value_(list(model.parameters()), 1.0))


def after_all_micro_batches():
    return _program(lambda model, _: clip_grad_norm_(model.parameters(), 1.0), micro=3)


def after_each_micro_batch():
    return _program(lambda model, _: clip_grad_norm_(model.parameters(), 1.0), micro=3, clip_each=True)


def now_and_then():
    return _program(lambda model, step: step % 3 or clip_grad_norm_(model.parameters(), 1.0))


def each_part_by_itself():
    return _program(lambda model, _: [clip_grad_norm_(list(part.parameters()), 1.0) for part in (model[0], model[2])])


def never():
    return _program(lambda model, _: None)


def norm_is_measured_after_the_step():
    return _program(lambda model, _: None, after=lambda model: clip_grad_norm_(model.parameters(), math.inf))


def with_a_scaler():
    model, optimizer = _policy()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)

    def loop(model, optimizer):
        for _ in range(5):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = model(torch.randn(4, 3)).square().mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def scaled_gradients_with_a_scaled_bound():
    model, optimizer = _policy()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)

    def loop(model, optimizer):
        for _ in range(5):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = model(torch.randn(4, 3)).square().mean()
            scaler.scale(loss).backward()
            clip_grad_norm_(model.parameters(), 1.0 * scaler.get_scale())
            scaler.step(optimizer)
            scaler.update()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def with_a_disabled_scaler():
    model, optimizer = _policy()
    scaler = torch.amp.GradScaler("cpu", enabled=False)

    def loop(model, optimizer):
        for _ in range(5):
            optimizer.zero_grad()
            scaler.scale(model(torch.randn(4, 3)).square().mean()).backward()
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def gan_with_both_losses_first():
    """The generator is clipped before the critic's backward, which does not touch it."""
    model = nn.ModuleDict({"generator": nn.Linear(2, 3), "critic": nn.Linear(3, 1)})
    generator = torch.optim.Adam(model["generator"].parameters(), lr=0.01)
    critic = torch.optim.Adam(model["critic"].parameters(), lr=0.01)

    def loop(model, optimizers):
        for _ in range(6):
            real, noise = torch.randn(4, 3), torch.randn(4, 2)
            fake = model["generator"](noise)
            generator.zero_grad()
            (-model["critic"](fake).mean()).backward()
            clip_grad_norm_(model["generator"].parameters(), 1.0)
            critic.zero_grad()
            (model["critic"](fake.detach()).mean() - model["critic"](real).mean()).backward()
            clip_grad_norm_(model["critic"].parameters(), 1.0)
            generator.step()
            critic.step()

    return {"model": model, "optimizer": [generator, critic], "loop": loop}


def frozen_parameters_are_handed_in_too():
    model, _ = _policy()
    model[0].requires_grad_(False)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])

    def loop(model, optimizer):
        for _ in range(6):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}
