"""Steps that leave a tensor on the CPU."""

import torch
from torch import nn
from torch.nn import functional as F

OFFSET = torch.linspace(0, 1, 4)


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(4, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        hidden = self.encoder(x)
        keep = torch.ones(hidden.shape[-1])  # DK003
        return {"loss": self.head(hidden * keep).mean()}


def mask_made_in_forward():
    return {
        "model": Masked(),
        "batch": {"x": torch.randn(2, 4)},
        "expect": {"module": "", "severity": "info", "message": "A float32 tensor of shape [8] stays on the CPU"},
    }


def mask_made_in_forward_of_a_program_that_names_its_device():
    return {
        "model": Masked(),
        "batch": {"x": torch.randn(2, 4)},
        "device": "cuda",
        "expect": {"module": "", "severity": "error"},
    }


def noise_forgotten_where_the_time_is_placed():
    def loss_fn(model, batch):
        time = torch.rand(len(batch["x"]), 1, device=batch["x"].device)
        noise = torch.randn(4)  # DK003
        return model(batch["x"] * time + noise).square().mean()

    return {
        "model": nn.Linear(4, 3),
        "batch": {"x": torch.randn(5, 4)},
        "loss_fn": loss_fn,
        "expect": {"severity": "warning"},
    }


def statistics_that_a_closure_holds():
    mean, std = torch.zeros(4), torch.ones(4)

    def loss_fn(model, batch):
        time = torch.rand(len(batch["x"]), 1, device=batch["x"].device)
        return model((batch["x"] - mean) / std * time).square().mean()  # DK003

    return {
        "model": nn.Linear(4, 3),
        "batch": {"x": torch.randn(5, 4)},
        "loss_fn": loss_fn,
        "expect": {"severity": "info", "message": "The same line uses 1 other tensor on the CPU"},
    }


def class_weights_made_in_the_loss():
    def loss_fn(model, batch):
        weight = torch.tensor([1.0, 2.0, 3.0])  # DK003
        return F.cross_entropy(model(batch["x"]), batch["y"], weight=weight)

    return {
        "model": nn.Linear(4, 3),
        "batch": {"x": torch.randn(5, 4), "y": torch.tensor([0, 1, 2, 0, 1])},
        "loss_fn": loss_fn,
    }


def global_tensor():
    def loss_fn(model, batch):
        return model(batch["x"] + OFFSET).mean()  # DK003

    return {
        "model": nn.Linear(4, 3),
        "batch": {"x": torch.randn(5, 4)},
        "loss_fn": loss_fn,
        "expect": {"message": "`OFFSET`"},
    }


class TwoLines(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(10, 4)
        self.places = nn.Embedding(10, 4)

    def forward(self, ids):
        places = torch.arange(ids.shape[1])  # DK003
        hidden = self.words(ids) + self.places(places)
        scale = torch.full((4,), 0.5)  # DK003
        return {"loss": (hidden * scale).mean()}


def every_line_is_named_at_once():
    return {"model": TwoLines(), "batch": {"ids": torch.randint(0, 10, (2, 5))}, "expect": {"count": 2}}


class _Encoder(nn.Module):
    """`nn.TransformerEncoder` compares the mask with a causal one, which it makes on the mask's device."""

    def __init__(self, mask):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.mask = mask

    def forward(self, x):
        return {"loss": self.encoder(x, mask=self.mask(x)).square().mean()}


def mask_of_an_encoder_that_is_on_the_cpu():
    def mask(x):
        return nn.Transformer.generate_square_subsequent_mask(x.shape[1])  # DK003

    expect = {"severity": "info", "message": "fails at `multi_head_attention_forward`"}
    return {"model": _Encoder(mask), "batch": {"x": torch.randn(3, 5, 8)}, "expect": expect}


def boolean_mask_of_an_encoder_beside_a_table_with_a_device():
    def mask(x):
        later = torch.arange(x.shape[1], device=x.device)
        full = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool)  # DK003
        return full.triu(len(later) - x.shape[1] + 1)

    return {"model": _Encoder(mask), "batch": {"x": torch.randn(3, 5, 8)}, "expect": {"severity": "warning"}}
