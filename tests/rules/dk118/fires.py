"""Checkpoints of which nothing was loaded. The line that a finding must name ends in `# DK118`."""

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 8))
        self.head = nn.Linear(8, 2)

    def forward(self, state):
        return self.head(self.tower(state))


def _program(load, **expect):
    model = Policy()
    optimizer = torch.optim.AdamW(model.parameters())

    def loop(model, optimizer):
        load(model)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            optimizer.step()

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"severity": "warning", **expect}}


def saved_from_the_wrapper_of_several_processes():
    def load(model):
        saved = {f"module.{name}": value for name, value in Policy().state_dict().items()}
        model.load_state_dict(saved, strict=False)  # DK118

    return _program(load, module="", message="loaded none of 6 tensors")


def whole_checkpoint_given_to_a_part():
    def load(model):
        model.tower.load_state_dict(Policy().state_dict(), strict=False)  # DK118

    return _program(load, module="tower", message="`tower.0.weight`")


def key_of_the_file_passed_by_position():
    def load(model):
        saved = {f"actor.{name}": value for name, value in Policy().state_dict().items()}
        model.load_state_dict(saved, False)  # DK118

    return _program(load, message="in the checkpoint")


def teacher_that_stays_random():
    """It is no part of the model, and what is learnt from it is noise."""
    teacher = Policy().requires_grad_(False)

    def load(_model):
        saved = {f"student.{name}": value for name, value in Policy().state_dict().items()}
        teacher.load_state_dict(saved, strict=False)  # DK118

    return _program(load)
