"""Loops in which the gradient of one step is far above all others."""

import torch
from torch import nn


def _policy():
    return nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2))


def _train(model, optimizers, scale_of, steps=40, **options):
    for step in range(steps):
        state, action = torch.randn(16, 3), torch.randn(16, 2) * scale_of(step)
        loss = (model(state) - action).square().mean()
        loss.backward()
        if options:
            torch.nn.utils.clip_grad_norm_(model.parameters(), **options)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


def one_episode_in_millimetres():
    """The actions in the batch of step 30 were not converted to metres."""
    model = _policy()

    def loop(model, optimizer):
        _train(model, [optimizer], lambda step: 1000.0 if step == 30 else 1.0)

    return {
        "model": model,
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3),
        "loop": loop,
        "expect": {"severity": "warning", "message": "jumped to", "parameter": "2.weight"},
    }


def clipped_far_above_the_usual_norm():
    model = _policy()

    def loop(model, optimizer):
        _train(model, [optimizer], lambda step: 1000.0 if step == 25 else 1.0, max_norm=100.0)

    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=1e-3), "loop": loop}


def in_one_of_two_optimizers():
    model = nn.ModuleDict({"arm": nn.Linear(3, 4), "gripper": nn.Linear(3, 4)})
    optimizers = [torch.optim.SGD(part.parameters(), lr=1e-3) for part in model.values()]

    def loop(model, optimizers):
        for step in range(30):
            state = torch.randn(16, 3)
            noise = torch.randn(16, 4) * (500.0 if step == 25 else 1.0)
            ((model["arm"](state) - 1).square().mean() + (model["gripper"](state) - noise).square().mean()).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()

    return {
        "model": model,
        "optimizer": optimizers,
        "loop": loop,
        "expect": {"message": "SGD (optimizer 1)", "parameter": "gripper.weight"},
    }


def in_the_eleventh_of_fourteen_steps():
    model = _policy()

    def loop(model, optimizer):
        _train(model, [optimizer], lambda step: 1000.0 if step == 10 else 1.0, steps=14)

    return {
        "model": model,
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3),
        "loop": loop,
        "expect": {"message": "of the previous 10 steps"},
    }


def of_an_optimizer_that_moves_by_the_sign_alone_is_only_information():
    class SignDescent(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {"lr": 1e-3})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.add_(parameter.grad.sign(), alpha=-group["lr"])

    program = one_episode_in_millimetres()
    return {
        **program,
        "optimizer": SignDescent(program["model"].parameters()),
        "expect": {"severity": "info", "message": "The gradient norm of SignDescent jumped to"},
    }
