"""Weights that are drawn without regard to the width."""

import torch
from torch import nn
from torch.nn import functional as F


def _arguments(model, **expect):
    return {
        "model": model,
        "batch": torch.randn(16, 32),
        "loss_fn": lambda model, batch: F.mse_loss(model(batch), torch.zeros(16, 4)),
        "expect": {"severity": "warning", **expect},
    }


def _mlp():
    return nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 4))


def unit_variance_in_every_layer():
    model = _mlp()
    for name, parameter in model.named_parameters():
        if name.endswith("weight") and parameter.ndim == 2:
            nn.init.normal_(parameter)
    return _arguments(model, message="more layer")


def uniform_between_minus_one_and_one():
    model = _mlp()
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.uniform_(module.weight, -1, 1)
    return _arguments(model)


def one_layer_only():
    model = _mlp()
    nn.init.normal_(model[3].weight, std=3)
    return _arguments(model, module="3", message="starts with random weights that make its outputs")


def in_a_loop():
    model = _mlp()
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loop(model, optimizer):
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(8, 32)).square().mean().backward()
            optimizer.step()

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"severity": "warning"}}
