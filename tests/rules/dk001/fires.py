"""Forward passes that raise because of a shape."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaModel, PretrainedConfig, SiglipVisionConfig, SiglipVisionModel


class _Config(PretrainedConfig):
    model_type = "tiny_policy"

    def __init__(self, vision_width=48, text_width=32, action_dim=7, **more):
        super().__init__(**more)
        self.vision_width, self.text_width, self.action_dim = vision_width, text_width, action_dim


class Policy(nn.Module):
    """A projector whose input width is the literal 32, while the vision tower is 48 wide."""

    def __init__(self):
        super().__init__()
        self.config = _Config()
        sizes = {"intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
        vision = SiglipVisionConfig(hidden_size=48, image_size=16, patch_size=8, **sizes)
        text = LlamaConfig(hidden_size=32, vocab_size=50, **sizes)
        self.vision = SiglipVisionModel(vision)
        self.projector = nn.Linear(32, self.config.text_width)
        self.language_model = LlamaModel(text)
        self.head = nn.Linear(self.config.text_width, self.config.action_dim)

    def forward(self, pixel_values, action):
        patches = self.vision(pixel_values=pixel_values).last_hidden_state
        embeddings = self.projector(patches)  # DK001
        hidden = self.language_model(inputs_embeds=embeddings).last_hidden_state[:, -1]
        return {"loss": F.mse_loss(self.head(hidden), action)}


def projector_width_is_a_literal():
    return {
        "model": Policy(),
        "batch": {"pixel_values": torch.randn(2, 3, 16, 16), "action": torch.randn(2, 7)},
        "expect": {
            "module": "projector",
            "severity": "error",
            "message": "expects size 32 but receives 48: (2, 4, 48), made by `vision",
        },
    }


def convolution_gets_channels_last():
    def loss_fn(model, batch):
        return model(batch).mean()  # DK001

    return {
        "model": nn.Sequential(nn.Conv2d(3, 4, 2)),
        "batch": torch.randn(2, 8, 8, 3),
        "loss_fn": loss_fn,
        "expect": {"module": "0", "message": "expects size 3 but receives 8"},
    }


class Concatenates(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Linear(4, 6)
        self.state = nn.Linear(3, 6)

    def forward(self, image, state):
        return torch.cat([self.image(image), self.state(state)], dim=-1).mean()  # DK001


def inside_forward_between_two_modules():
    return {
        "model": nn.ModuleDict({"trunk": Concatenates()}),
        "batch": (torch.randn(2, 5, 4), torch.randn(2, 3)),
        "loss_fn": lambda model, batch: model["trunk"](*batch),
        "expect": {"module": "trunk", "message": "Its inputs: (2, 5, 4) and (2, 3)."},
    }


def in_the_loss():
    def loss_fn(model, batch):
        return F.cross_entropy(model(batch), torch.zeros(3, dtype=torch.long))  # DK001

    return {
        "model": nn.Linear(4, 5),
        "batch": torch.randn(2, 4),
        "loss_fn": loss_fn,
        "expect": {"module": None, "message": "The loss raised"},
    }


class Tolerant(nn.Module):
    """One part fails and its exception is caught by a fallback; the fault is elsewhere."""

    def __init__(self):
        super().__init__()
        self.fast, self.slow, self.head = nn.Linear(9, 4), nn.Linear(4, 4), nn.Linear(8, 1)

    def forward(self, x):
        try:
            x = self.fast(x)
        except RuntimeError:
            x = self.slow(x)
        return {"loss": self.head(x).mean()}  # DK001


def not_the_module_whose_failure_was_caught():
    return {"model": Tolerant(), "batch": {"x": torch.randn(2, 4)}, "expect": {"module": "head"}}
