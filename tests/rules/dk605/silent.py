"""Loops with hooks, of which none is left behind in every step."""

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm


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


def _program(loop, model=None, **more):
    model = model or Policy()
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters()), "loop": loop, **more}


def _ignore(*_):
    return None


def registered_before_the_loop():
    def loop(model, optimizer):
        model.tower.register_forward_hook(_ignore)
        for parameter in model.parameters():
            parameter.register_hook(lambda gradient: gradient.clamp(-1, 1))
        for _ in range(12):
            _step(model, optimizer)

    return _program(loop)


def removed_after_each_step():
    def loop(model, optimizer):
        for _ in range(12):
            with model.tower.register_forward_hook(_ignore):
                _step(model, optimizer)

    return _program(loop)


def hooks_of_activations():
    """A hook on an intermediate tensor is freed with the tensor."""

    class Hooked(Policy):
        def forward(self, state):
            features = self.tower(state)
            features.register_hook(lambda gradient: gradient * 0.5)
            return self.head(features)

    def loop(model, optimizer):
        for _ in range(12):
            _step(model, optimizer)

    return _program(loop, Hooked())


def one_for_each_layer_in_turn():
    """Each step hooks another layer, as when a progress of freezing is logged."""
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(12)))

    def loop(model, optimizer):
        for layer in model:
            layer.register_forward_hook(_ignore)
            optimizer.zero_grad()
            model(torch.randn(4, 4)).square().mean().backward()
            optimizer.step()

    return _program(loop, model)


def once_an_epoch():
    def loop(model, optimizer):
        for step in range(12):
            if step % 3 == 0:
                model.tower.register_forward_hook(_ignore)
            _step(model, optimizer)

    return _program(loop)


def replaced_in_each_step():
    """The handle of the step before is removed when the next hook is registered."""

    def loop(model, optimizer):
        handle = None
        for _ in range(12):
            if handle is not None:
                handle.remove()
            handle = model.tower.register_forward_hook(_ignore)
            _step(model, optimizer)

    return _program(loop)


def hooks_of_a_parametrisation():
    def loop(model, optimizer):
        for _ in range(12):
            _step(model, optimizer)

    model = Policy()
    weight_norm(model.head)
    return _program(loop, model)


def a_run_of_four_steps():
    def loop(model, optimizer):
        for _ in range(4):
            model.tower.register_forward_hook(_ignore)
            _step(model, optimizer)

    return _program(loop, expect={"not_examined": "The run is too short: 4 of 5 steps."})
