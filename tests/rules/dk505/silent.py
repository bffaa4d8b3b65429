"""Eval mode that is intended, or that ends in time."""

import torch
from torch import nn
from transformers import SiglipVisionConfig, SiglipVisionModel


def _train(model, optimizer, steps=3):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 3)).square().mean().backward()
        optimizer.step()


def _policy():
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))
    return model, torch.optim.AdamW(model.parameters())


def evaluation_puts_it_back():
    model, optimizer = _policy()

    def loop(model, optimizer):
        for _ in range(3):
            model.train()
            _train(model, optimizer)
            model.eval()
            with torch.no_grad():
                model(torch.randn(4, 3))

    return {"model": model, "optimizer": optimizer, "loop": loop}


def frozen_batchnorm_inside_a_training_model():
    model, optimizer = _policy()

    def loop(model, optimizer):
        model.train()
        model[1].eval()
        _train(model, optimizer, 8)

    return {"model": model, "optimizer": optimizer, "loop": loop}


def nothing_to_switch():
    model = nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.Dropout(0.0), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters())

    def loop(model, optimizer):
        model.eval()
        _train(model, optimizer, 8)

    return {"model": model, "optimizer": optimizer, "loop": loop}


class FrozenTower(nn.Module):
    def __init__(self):
        super().__init__()
        config = SiglipVisionConfig(
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            image_size=8,
            patch_size=4,
            attention_dropout=0.1,
        )
        tower = SiglipVisionModel(config)
        tower.dropout = nn.Dropout(0.1)
        self.vision = nn.ModuleDict({"tower": tower.requires_grad_(False)})
        self.head = nn.Linear(16, 2)

    def forward(self, state):
        pixels = state.mean() * torch.ones(4, 3, 8, 8)
        return self.head(self.vision["tower"](pixel_values=pixels).pooler_output)


def linear_probe_on_a_frozen_tower():
    """All modules that eval mode switches off are in the frozen part."""
    model = FrozenTower()
    optimizer = torch.optim.AdamW(model.head.parameters())

    def loop(model, optimizer):
        model.eval()
        model.head.train()
        _train(model, optimizer, 8)

    return {"model": model, "optimizer": optimizer, "loop": loop}


def two_steps_of_calibration_at_the_end():
    model, optimizer = _policy()

    def loop(model, optimizer):
        _train(model, optimizer, 5)
        model.eval()
        _train(model, optimizer, 2)

    return {"model": model, "optimizer": optimizer, "loop": loop}
