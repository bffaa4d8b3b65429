"""Hooks that are registered again in every step. The line that a finding must name ends in `# DK605`."""

import functools

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(3, 8), nn.Tanh())
        self.head = nn.Linear(8, 2)

    def forward(self, state):
        return self.head(self.tower(state))


def _step(model, optimizer):
    optimizer.zero_grad()
    model(torch.randn(4, 3)).square().mean().backward()
    optimizer.step()


def _program(loop, **expect):
    model = Policy()
    optimizer = torch.optim.AdamW(model.parameters())
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"severity": "warning", **expect}}


def features_of_each_step():
    seen = []

    def loop(model, optimizer):
        for _ in range(6):
            model.tower.register_forward_hook(lambda *given: seen.append(given[2].detach()))  # DK605
            _step(model, optimizer)

    return _program(loop, module="tower", message="5 forward hooks")


def gradients_clipped_by_a_hook_of_each_step():
    def clipped(gradient):  # DK605
        return gradient.clamp(-1, 1)

    def loop(model, optimizer):
        for _ in range(6):
            for parameter in model.parameters():
                parameter.register_hook(clipped)
            _step(model, optimizer)

    return _program(loop, parameter="tower.0.weight", message="and so have 3 others")


def method_registered_by_forward():
    class Recording(Policy):
        def keep(self, _module, _args, output):  # DK605
            self.kept = output.detach()

        def forward(self, state):
            self.tower.register_forward_hook(self.keep)
            return super().forward(state)

    def loop(model, optimizer):
        for _ in range(6):
            _step(model, optimizer)

    model = Recording()
    return {**_program(loop, module="tower"), "model": model, "optimizer": torch.optim.AdamW(model.parameters())}


def one_handle_of_two_removed():
    """A hook for each step and its `pre` partner; only the handle of the last one is removed."""

    def begin(name, _module, _args):  # DK605
        return None

    def end(_module, _args, _output):
        return None

    def loop(model, optimizer):
        for _ in range(7):
            model.head.register_forward_pre_hook(functools.partial(begin, "head"))
            handle = model.head.register_forward_hook(end)
            _step(model, optimizer)
            handle.remove()

    return _program(loop, module="head", message="5 forward pre-hooks")
