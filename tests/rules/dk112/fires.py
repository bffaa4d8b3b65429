"""Frozen tensors that change."""

import torch
from torch import nn

import debugkit


def _program(model, **more):
    loss_fn = lambda model, batch: model(batch).square().mean()  # noqa: E731 - one line is the point here
    optimizer = torch.optim.AdamW(model.parameters())
    return {"model": model, "batch": torch.randn(6, 4), "loss_fn": loss_fn, "optimizer": optimizer, **more}


def batch_norm_of_a_frozen_tower_in_training_mode():
    tower = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    tower.requires_grad_(False)
    model = nn.Sequential(tower, nn.Linear(4, 2)).train()
    return _program(
        model, expect={"module": "0.1", "message": "2 frozen buffers (`0.1.running_mean` and `0.1.running_var`)"}
    )


def weight_written_in_the_forward_pass():
    class Rescaling(nn.Module):
        def __init__(self):
            super().__init__()
            self.tower, self.head = nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 2)

        def forward(self, x):
            self.tower.weight.data.mul_(0.99)
            return self.head(self.tower(x))

    return _program(Rescaling(), expect={"parameter": "tower.weight", "message": "during the forward pass"})


def declared_frozen_but_the_optimizer_moves_it():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    declare = debugkit.Declare(trainable=["1.*"])
    return _program(model, declare=declare, expect={"parameter": "0.weight", "message": "in `optimizer.step()`"})


def copy_that_moves_away_from_its_twin():
    class Drifting(nn.Module):
        def __init__(self):
            super().__init__()
            self.queries = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
            self.keys = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).requires_grad_(False)
            self.keys.load_state_dict(self.queries.state_dict())

        def forward(self, x):
            with torch.no_grad():
                for slow, fast in zip(self.keys.parameters(), self.queries.parameters(), strict=True):
                    slow.add_(fast, alpha=0.01)  # the old value is not multiplied by 0.99
            return self.queries(x) - self.keys(x)

    return _program(Drifting(), expect={"parameter": "keys.0.weight", "message": "during the forward pass"})
