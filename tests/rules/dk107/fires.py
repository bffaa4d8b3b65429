"""Parameters that are connected and get only zeros."""

import torch
from torch import nn


class ActionDecoder(nn.Module):
    """Refines a state layer by layer and stacks the outputs of all layers."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])

    def forward(self, state):
        states = []
        for layer in self.layers:
            state = layer(state).tanh()
            states.append(state)
        return torch.stack(states)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.decoder, self.head = nn.Linear(6, 8), ActionDecoder(), nn.Linear(8, 2)

    def choose(self, states):
        return states[0]

    def forward(self, x, action):
        return {"loss": (self.head(self.choose(self.decoder(self.vision(x)))) - action).square().mean()}


def _program(model, **expect):
    batch = {"x": torch.randn(8, 6), "action": torch.randn(8, 2)}
    return {"model": model, "batch": batch, "expect": {"severity": "warning", **expect}}


def first_layer_of_stacked_states():
    return _program(Policy(), module="decoder.layers", message="4 parameters of `decoder.layers` (`decoder.layers.1")


def branch_times_a_mask_of_zeros():
    class Masked(Policy):
        def __init__(self):
            super().__init__()
            self.wrist = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 8))
            self.register_buffer("mask", torch.zeros(8))

        def choose(self, states):
            return states[-1]

        def forward(self, x, action):
            seen = self.decoder(self.vision(x) + self.mask * self.wrist(x))
            return {"loss": (self.head(self.choose(seen)) - action).square().mean()}

    return _program(Masked(), module="wrist", message="4 parameters of `wrist`")


def output_clamped_at_its_limit():
    class Clamped(Policy):
        def forward(self, x, action):
            gripper = (self.vision(x) + 40).clamp(-1, 1)
            return {"loss": (self.head(self.decoder(gripper)[-1]) - action).square().mean()}

    return _program(Clamped(), module="vision")
