"""Clips without effect, or with a wrong effect."""

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_


def _policy():
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    return model, torch.optim.AdamW(model.parameters())


def before_backward():
    model, optimizer = _policy()

    def loop(model, optimizer):
        for _ in range(5):
            optimizer.zero_grad()
            clip_grad_norm_(model.parameters(), 1.0)  # DK504
            model(torch.randn(4, 3)).square().mean().backward()
            optimizer.step()

    return {
        "model": model,
        "optimizer": optimizer,
        "loop": loop,
        "expect": {"message": "no new gradients"},
    }


def after_the_step():
    model, optimizer = _policy()

    def loop(model, optimizer):
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            optimizer.step()
            clip_grad_norm_(model.parameters(), 1.0)  # DK504

    return {"model": model, "optimizer": optimizer, "loop": loop}


def scaled_gradients():
    model, optimizer = _policy()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)

    def loop(model, optimizer):
        for _ in range(5):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = model(torch.randn(4, 3)).square().mean()
            scaler.scale(loss).backward()
            clip_grad_norm_(model.parameters(), 1.0)  # DK504
            scaler.step(optimizer)
            scaler.update()

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"message": "GradScaler's scale"}}


def generator_that_is_used_up():
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    parameters = (parameter for parameter in list(model.parameters()))
    optimizer = torch.optim.AdamW(parameters)

    def loop(model, optimizer):
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            clip_grad_norm_(list(parameters), 1.0)  # DK504
            optimizer.step()

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"message": "received no parameters"}}


def a_second_loss_comes_after_the_clip():
    model, optimizer = _policy()

    def loop(model, optimizer):
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            clip_grad_norm_(model.parameters(), 1.0)  # DK504
            (100 * model(torch.randn(4, 3)).abs().mean()).backward()
            optimizer.step()

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"message": "before the last `backward()`"}}


def learnt_temperature_is_left_out():
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    temperature = nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.AdamW([*model.parameters(), temperature])

    def loop(model, optimizer):
        for _ in range(5):
            optimizer.zero_grad()
            (model(torch.randn(4, 3)).square().mean() * temperature.exp() - temperature).backward()
            clip_grad_norm_(model.parameters(), 1.0)  # DK504
            optimizer.step()

    expect = {"message": "leaves out some", "severity": "info"}
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": expect}
