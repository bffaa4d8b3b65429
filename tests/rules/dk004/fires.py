"""Forward passes that raise because of a dtype."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaModel


class HeadOutsideTheCast(nn.Module):
    """The language model was cast to bfloat16, but not the head that was added afterwards."""

    def __init__(self):
        super().__init__()
        config = LlamaConfig(
            hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, vocab_size=50
        )
        self.language_model = LlamaModel(config).bfloat16()
        self.head = nn.Linear(32, 7)

    def forward(self, input_ids, action):
        hidden = self.language_model(input_ids=input_ids).last_hidden_state[:, -1]
        return {"loss": F.mse_loss(self.head(hidden), action)}  # DK004


def head_in_float32_behind_a_model_in_bfloat16():
    return {
        "model": HeadOutsideTheCast(),
        "batch": {"input_ids": torch.randint(0, 50, (2, 6)), "action": torch.randn(2, 7)},
        "expect": {
            "module": "head",
            "severity": "error",
            "message": "has float32 weights but receives bfloat16, made by `language_model",
        },
    }


def states_from_numpy_are_float64():
    def loss_fn(model, batch):
        return model(batch["state"]).square().mean()  # DK004

    return {
        "model": nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)),
        "batch": {"state": torch.randn(5, 3, dtype=torch.float64)},
        "loss_fn": loss_fn,
        "expect": {"module": "0", "message": "has float32 weights but receives float64"},
    }


def image_not_cast_for_a_convolution_in_bfloat16():
    def loss_fn(model, batch):
        return model(batch).float().mean()  # DK004

    model = nn.Sequential(nn.Conv2d(3, 4, 2)).bfloat16()
    return {"model": model, "batch": torch.randn(2, 3, 8, 8), "loss_fn": loss_fn, "expect": {"module": "0"}}


def recurrent_layer():
    def loss_fn(model, batch):
        return model(batch)[0].float().mean()  # DK004

    return {
        "model": nn.ModuleList([nn.GRU(3, 3)])[0].bfloat16(),
        "batch": torch.randn(2, 4, 3),
        "loss_fn": loss_fn,
        "expect": {"module": "", "message": "has bfloat16 weights but receives float32"},
    }


def class_labels_as_floats():
    def loss_fn(model, batch):
        return F.cross_entropy(model(batch["x"]), batch["label"].to(torch.int32))  # DK004

    return {
        "model": nn.Linear(3, 5),
        "batch": {"x": torch.randn(4, 3), "label": torch.tensor([0.0, 1.0, 2.0, 3.0])},
        "loss_fn": loss_fn,
        "expect": {"module": None, "message": "The loss raised"},
    }


def token_ids_as_floats():
    def loss_fn(model, batch):
        return model(batch).mean()  # DK004

    return {"model": nn.Embedding(5, 3), "batch": torch.ones(2, 4), "loss_fn": loss_fn, "expect": {"module": ""}}
