"""Models that use several dtypes on purpose."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM


def _llama():
    config = LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, vocab_size=50
    )
    return LlamaForCausalLM(config)


def whole_model_in_bfloat16():
    ids = torch.randint(0, 50, (2, 6))
    return {"model": _llama().bfloat16(), "batch": {"input_ids": ids, "labels": ids}}


def float32_norms_in_a_bfloat16_model():
    model = _llama().bfloat16()
    for name, module in model.named_modules():
        if name.endswith("norm"):
            module.float()

    def loss_fn(model, batch):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(**batch).loss

    ids = torch.randint(0, 50, (2, 6))
    return {"model": model, "batch": {"input_ids": ids, "labels": ids}, "loss_fn": loss_fn}


def autocast():
    def loss_fn(model, batch):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(batch).square().mean()

    model = nn.Sequential(nn.Conv2d(3, 4, 2), nn.Flatten(), nn.Linear(196, 2))
    return {"model": model, "batch": torch.randn(2, 3, 8, 8), "loss_fn": loss_fn}


class CastsAtTheBorder(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(3, 8).bfloat16()
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 2)

    def forward(self, state, action):
        hidden = self.norm(self.trunk(state.to(self.trunk.weight.dtype)))
        return {"loss": F.mse_loss(self.head(hidden.to(self.head.weight.dtype)), action)}


def head_in_float32_that_casts():
    return {"model": CastsAtTheBorder(), "batch": {"state": torch.randn(4, 3).double(), "action": torch.randn(4, 2)}}


def wrong_shape_is_another_rule():
    return {"model": nn.Linear(3, 3), "batch": torch.randn(4, 5), "loss_fn": lambda model, batch: model(batch).mean()}
