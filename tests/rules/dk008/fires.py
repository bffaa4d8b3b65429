"""Modules that run without an effect."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import SiglipVisionConfig, SiglipVisionModel


class UNet(nn.Module):
    """The skip's condition compares the wrong dimension, so it is never true."""

    def __init__(self, effect):
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.skip = nn.Conv2d(3, 8, 1)
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.head = nn.Conv2d(8, 1, 1)
        self.effect = effect

    def forward(self, image, target):
        fine = self.skip(image)
        x = self.up(self.down(image).relu())
        if self.effect == "never" and fine.shape[1] == x.shape[2]:
            x = x + fine
        if self.effect == "times zero":
            x = x + 0.0 * fine
        return {"loss": F.mse_loss(self.head(x), target)}


def _images():
    return {"image": torch.randn(2, 3, 16, 16), "target": torch.randn(2, 1, 16, 16)}


def skip_connection_whose_condition_is_never_true():
    return {
        "model": UNet("never"),
        "batch": _images(),
        "expect": {"module": "skip", "severity": "warning", "message": "`skip` (Conv2d) runs"},
    }


def multiplied_away():
    return {"model": UNet("times zero"), "batch": _images(), "expect": {"module": "skip"}}


class Policy(nn.Module):
    """The state is embedded, and the next line overwrites it."""

    def __init__(self, frozen=False):
        super().__init__()
        self.image = nn.Linear(6, 8)
        self.state = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8))
        self.head = nn.Linear(8, 2)
        self.state.requires_grad_(not frozen)
        self.frozen = frozen

    def forward(self, image, state, action):
        features = self.image(image)
        with torch.set_grad_enabled(not self.frozen):
            own = self.state(state)
        features, _ = torch.broadcast_tensors(features, own)
        return {"loss": F.mse_loss(self.head(features), action)}


def _observations():
    return {"image": torch.randn(4, 6), "state": torch.randn(4, 3), "action": torch.randn(4, 2)}


def features_that_are_not_joined():
    return {"model": Policy(), "batch": _observations(), "expect": {"module": "state", "severity": "warning"}}


def frozen_branch_under_no_grad():
    return {"model": Policy(frozen=True), "batch": _observations(), "expect": {"module": "state"}}


def pooler_of_a_vision_tower_is_for_your_information():
    config = SiglipVisionConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8
    )

    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.vision = SiglipVisionModel(config)
            self.head = nn.Linear(32, 2)

        def forward(self, pixel_values):
            return {"loss": self.head(self.vision(pixel_values).last_hidden_state).square().mean()}

    return {
        "model": Reads(),
        "batch": {"pixel_values": torch.randn(2, 3, 16, 16)},
        "expect": {"severity": "info", "message": "but nothing uses it"},
    }


def branch_multiplied_by_a_mask_of_zeros():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.skip = nn.Linear(6, 6), nn.Linear(6, 6)
            self.register_buffer("mask", torch.zeros(6))

        def forward(self, x):
            return {"loss": (self.body(x) + self.mask * self.skip(x)).square().mean()}

    return {"model": Masked(), "batch": {"x": torch.randn(4, 6)}, "expect": {"module": "skip"}}
